// Filters that go through a sequence with another filter, a test or an attribute: map, select and
// their like.
#include <algorithm>
#include <charconv>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/filters.h"

namespace pewter::jinja {
namespace {

// The arguments from the given position on, for the filter or test that the one before names.
Arguments rest_of(const Arguments& arguments, size_t from) {
  Arguments rest;
  for (size_t i = from; i < arguments.positional.size(); ++i)
    rest.positional.push_back(arguments.positional[i]);
  rest.named = arguments.named;
  return rest;
}

// What these filters go through: of any false value nothing, though it may be a number.
Result<std::shared_ptr<const Sequence>> items_or_none(const FilterCall& call) {
  return iterate(call.budget, call.input.truthy() ? call.input : Value());
}

Result<Value> map_attribute(const FilterCall& call, const std::vector<Value>& items) {
  const Value* path = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, value] : call.arguments.named) {
    if (name == "attribute")
      path = &value;
    else if (name == "default")
      otherwise = &value;
    else
      return call.fails(str_cat("unexpected keyword argument '", name, "'"));
  }
  if (path == nullptr) return call.fails("requires a filter argument");
  std::vector<Value> out;
  for (const Value& item : items) {
    TRY_ASSIGN(Value value, value_at_path(call.budget, item, *path, otherwise));
    out.push_back(std::move(value));
  }
  return make_sequence(call.budget, Sequence::Kind::kGenerator, std::move(out));
}

Result<Value> map(const FilterCall& call) {
  TRY_ASSIGN(const auto items, items_or_none(call));
  if (call.arguments.positional.empty()) return map_attribute(call, items->items);
  TRY_ASSIGN(const Text* name, text_argument(&call.arguments.positional[0], call.name));
  const Arguments rest = rest_of(call.arguments, 1);
  std::vector<Value> out;
  for (const Value& item : items->items) {
    TRY_ASSIGN(Value value, call.interpreter.apply_filter(name->view(), item, rest));
    out.push_back(std::move(value));
  }
  return make_sequence(call.budget, Sequence::Kind::kGenerator, std::move(out));
}

// select, reject, selectattr, rejectattr.
Result<Value> select(const FilterCall& call) {
  const bool by_attribute = call.name.ends_with("attr");
  const bool wanted = call.name.starts_with("select");
  const auto& positional = call.arguments.positional;
  if (by_attribute && positional.empty()) return call.fails("missing the attribute's name");
  const size_t test_at = by_attribute ? 1 : 0;
  const Text* test = nullptr;
  if (positional.size() > test_at) {
    TRY_ASSIGN(test, text_argument(&positional[test_at], call.name));
  }
  const Arguments rest = rest_of(call.arguments, test_at + 1);
  TRY_ASSIGN(const auto items, items_or_none(call));
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    TRY(call.budget.spend_steps(1));
    Value value = item;
    if (by_attribute) {
      TRY_ASSIGN(value, value_at_path(call.budget, item, positional[0]));
    }
    bool holds = value.truthy();
    if (test != nullptr) {
      TRY_ASSIGN(holds, call.interpreter.apply_test(test->view(), value, rest));
    }
    if (holds == wanted) kept.push_back(item);
  }
  return make_sequence(call.budget, Sequence::Kind::kGenerator, std::move(kept));
}

constexpr FilterEntry kFilters[] = {
    {"map", map},           {"select", select},     {"reject", select},
    {"selectattr", select}, {"rejectattr", select},
};

}  // namespace

FilterFunction find_select_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters)
    if (entry.name == name) return entry.function;
  return nullptr;
}

Result<Value> value_at_path(Budget& budget, const Value& value, const Value& path,
                            const Value* otherwise) {
  const auto step = [&](const Value& from, const Value& key) -> Result<Value> {
    TRY_ASSIGN(Value found, item(budget, from, key));
    return found.is_undefined() && otherwise != nullptr && !otherwise->is_none() ? *otherwise
                                                                                 : found;
  };
  if (!path.is_string()) return step(value, path);
  Value at = value;
  std::string_view rest = path.text().view();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number =
        failure == std::errc() && end == part.data() + part.size() && part[0] != '-';
    TRY_ASSIGN(at, step(at, number ? Value(index) : Value::authored(part)));
    if (dot == rest.size()) return at;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace pewter::jinja
