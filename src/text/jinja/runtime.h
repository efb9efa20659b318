// What a rendering keeps while it runs: scopes of variables, macros, loops, and the arena that owns
// whatever values may only point to.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace pewter::jinja {

// Variables of a block; names are views of the tree's. A scope outlives its block only when a macro
// was defined in it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
      for (const auto& [variable, value] : scope->variables)
        if (variable == name) return &value;
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    for (auto& [variable, old] : variables) {
      if (variable == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
};

// A macro, or the body of a call block.
struct Macro {
  const Statement* node = nullptr;
  std::shared_ptr<Scope> scope;  // where it was defined
};

struct Loop {
  const Statement* node = nullptr;
  std::shared_ptr<Scope> scope;  // around the loop, for loop(children)
  std::shared_ptr<const Sequence> items;
  int64_t index = 0;
  int64_t depth = 0;
  std::optional<std::vector<Value>> last_changed;  // arguments of the last loop.changed(…)
};

// Owns what values point to. Macros hold scopes and scopes hold pointers to macros, never the other
// way round, so nothing is owned in a circle.
struct Arena {
  std::deque<Namespace> namespaces;
  std::deque<Macro> macros;
  std::deque<Loop> loops;
};

// Arguments of one call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

}  // namespace pewter::jinja
