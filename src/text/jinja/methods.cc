// Methods of mappings, sequences and loops.
#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/compare.h"

namespace pewter::jinja {
namespace {

Result<Value> call_dict_method(Budget& budget, const Value& self, std::string_view name,
                               const Arguments& arguments) {
  const Dict& dict = self.dict();
  if (name == "get") {
    TRY_ASSIGN(const auto given, bind(arguments, name, {"key", "default"}, 1));
    TRY(budget.spend_steps(1));
    const Value* found = is_hashable(*given[0]) ? dict.find(*given[0]) : nullptr;
    if (found != nullptr) return *found;
    return given[1] != nullptr ? *given[1] : Value(None{});
  }
  TRY(bind(arguments, name, {}));
  if (name == "copy") return self;  // nothing can change either one
  std::vector<Value> items;
  items.reserve(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    if (name == "items") {
      TRY_ASSIGN(Value pair, make_pair(budget, key, value));
      items.push_back(std::move(pair));
    } else {
      items.push_back(name == "keys" ? key : value);
    }
  }
  const auto kind = name == "items"  ? Sequence::Kind::kItems
                    : name == "keys" ? Sequence::Kind::kKeys
                                     : Sequence::Kind::kValues;
  return make_sequence(budget, kind, std::move(items));
}

Result<Value> call_sequence_method(Budget& budget, const Value& self, std::string_view name,
                                   const Arguments& arguments) {
  if (name == "copy") {
    TRY(bind(arguments, name, {}));
    return self;
  }
  TRY_ASSIGN(const auto given, bind(arguments, name, {"value"}, 1));
  const auto& items = self.sequence()->items;
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    TRY_ASSIGN(const bool same, equal(budget, items[i], *given[0]));
    if (same && name == "index") return Value(static_cast<int64_t>(i));
    count += same;
  }
  if (name == "index") return Error{ErrorCode::kUnsupported, "the value is not in the list"};
  return Value(count);
}

Result<Value> call_loop_method(Budget& budget, Loop& loop, std::string_view name,
                               const Arguments& arguments) {
  const auto& values = arguments.positional;
  if (!arguments.named.empty())
    return Error{ErrorCode::kUnsupported, str_cat("loop.", name, " takes no named arguments")};
  if (name == "cycle") {
    if (values.empty()) return Error{ErrorCode::kUnsupported, "no items for cycling given"};
    return values[static_cast<size_t>(loop.index) % values.size()];
  }
  bool changed = !loop.last_changed || loop.last_changed->size() != values.size();
  for (size_t i = 0; !changed && i < values.size(); ++i) {
    TRY_ASSIGN(const bool same, equal(budget, (*loop.last_changed)[i], values[i]));
    changed = !same;
  }
  if (changed) loop.last_changed = values;
  return Value(changed);
}

}  // namespace

Result<Value> call_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  if (self.is_string()) return call_string_method(budget, self.text(), name, arguments);
  if (self.is_dict()) return call_dict_method(budget, self, name, arguments);
  if (self.is_sequence()) return call_sequence_method(budget, self, name, arguments);
  return call_loop_method(budget, *self.loop(), name, arguments);
}

}  // namespace pewter::jinja
