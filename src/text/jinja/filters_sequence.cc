// Filters on sequences as wholes: counting, sorting, grouping, cutting.
#include <algorithm>
#include <numeric>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/arithmetic.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"

namespace pewter::jinja {
namespace {

Result<Value> length_filter(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  if (call.input.is_string()) TRY(call.budget.spend_scan(call.input.text().size()));
  TRY_ASSIGN(const int64_t count, length(call.input));
  return Value(count);
}

Result<Value> items_filter(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  std::vector<Value> items;
  if (!call.input.is_undefined()) {
    if (!call.input.is_dict()) return call.fails("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : call.input.dict().items) {
      TRY_ASSIGN(Value pair, make_pair(call.budget, key, value));
      items.push_back(std::move(pair));
    }
  }
  return make_sequence(call.budget, Sequence::Kind::kGenerator, std::move(items));
}

Result<Value> first(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  if (items->items.empty()) return Value::undefined("No first item, sequence was empty.");
  return items->items.front();
}

Result<Value> last(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  if (call.input.is_sequence() && !call.input.sequence()->has_length())
    return call.fails("'generator' object is not reversible");
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  if (items->items.empty()) return Value::undefined("No last item, sequence was empty.");
  return items->items.back();
}

Result<Value> list(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  return make_sequence(call.budget, Sequence::Kind::kList, items->items);
}

Result<Value> reverse(const FilterCall& call) {
  TRY(bind(call.arguments, call.name, {}));
  if (call.input.is_string()) return slice(call.budget, call.input, {.step = Value(-1)});
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  std::vector<Value> reversed(items->items.rbegin(), items->items.rend());
  return make_sequence(call.budget, Sequence::Kind::kGenerator, std::move(reversed));
}

Result<std::vector<Value>> keys_of(const FilterCall& call, const std::vector<Value>& items,
                                   const Value* path, bool case_sensitive) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    TRY_ASSIGN(Value key, sort_key(call.budget, item, path, case_sensitive));
    keys.push_back(std::move(key));
  }
  return keys;
}

// The key of the sort filter: a list with one entry for each attribute of "age,name". That it is a
// list shows: two values that are equal but have no order are in order.
Result<Value> list_key(const FilterCall& call, const Value& item, const Value* paths,
                       bool case_sensitive) {
  std::vector<Value> parts;
  std::string_view rest;
  if (paths != nullptr && paths->is_string()) rest = paths->text().view();
  do {
    const size_t comma = std::min(rest.find(','), rest.size());
    const Value path = rest.empty() ? Value() : Value::authored(rest.substr(0, comma));
    const Value* const used = rest.empty() ? paths : &path;
    TRY_ASSIGN(Value part, sort_key(call.budget, item, used, case_sensitive));
    parts.push_back(std::move(part));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  } while (!rest.empty());
  return make_sequence(call.budget, Sequence::Kind::kList, std::move(parts));
}

Result<Value> sort(const FilterCall& call) {
  TRY_ASSIGN(const auto given,
             bind(call.arguments, call.name, {"reverse", "case_sensitive", "attribute"}));
  TRY_ASSIGN(const bool reversed, flag_argument(given[0], false));
  TRY_ASSIGN(const bool case_sensitive, flag_argument(given[1], false));
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  std::vector<Value> keys;
  for (const Value& item : items->items) {
    TRY_ASSIGN(Value key, list_key(call, item, given[2], case_sensitive));
    keys.push_back(std::move(key));
  }
  TRY_ASSIGN(const auto order_of, sorted_order(call.budget, keys, reversed));
  std::vector<Value> sorted;
  for (const size_t index : order_of) sorted.push_back(items->items[index]);
  return make_sequence(call.budget, Sequence::Kind::kList, std::move(sorted));
}

Result<Value> dictsort(const FilterCall& call) {
  TRY_ASSIGN(const auto given,
             bind(call.arguments, call.name, {"case_sensitive", "by", "reverse"}));
  TRY_ASSIGN(const bool case_sensitive, flag_argument(given[0], false));
  TRY_ASSIGN(const Text* by, text_argument(given[1], call.name));
  TRY_ASSIGN(const bool reversed, flag_argument(given[2], false));
  if (!call.input.is_dict()) return call.fails("wants a mapping");
  const bool by_value = by != nullptr && by->bytes == "value";
  if (!by_value && by != nullptr && by->bytes != "key")
    return call.fails("You can only sort by either \"key\" or \"value\"");
  const auto& items = call.input.dict().items;
  std::vector<Value> keys;
  for (const auto& [key, value] : items) {
    TRY_ASSIGN(Value sorted_by,
               sort_key(call.budget, by_value ? value : key, nullptr, case_sensitive));
    keys.push_back(std::move(sorted_by));
  }
  TRY_ASSIGN(const auto order_of, sorted_order(call.budget, keys, reversed));
  std::vector<Value> pairs;
  for (const size_t index : order_of) {
    TRY_ASSIGN(Value pair, make_pair(call.budget, items[index].first, items[index].second));
    pairs.push_back(std::move(pair));
  }
  return make_sequence(call.budget, Sequence::Kind::kList, std::move(pairs));
}

Result<Value> extreme(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"case_sensitive", "attribute"}));
  TRY_ASSIGN(const bool case_sensitive, flag_argument(given[0], false));
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  if (items->items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  TRY_ASSIGN(const auto keys, keys_of(call, items->items, given[1], case_sensitive));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    TRY_ASSIGN(const bool better,
               compare(call.budget, call.name == "min" ? CompareOp::kLess : CompareOp::kGreater,
                       keys[i], keys[best]));
    if (better) best = i;
  }
  return items->items[best];
}

Result<Value> sum(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"attribute", "start"}));
  Value total = given[1] != nullptr ? *given[1] : Value(0);
  if (total.is_string()) return call.fails("cannot add strings");
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  for (Value item : items->items) {
    if (given[0] != nullptr && !given[0]->is_none()) {
      TRY_ASSIGN(item, value_at_path(call.budget, item, *given[0]));
    }
    TRY_ASSIGN(total, binary(call.budget, BinaryOp::kAdd, total, item));
  }
  return total;
}

Result<Value> unique(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"case_sensitive", "attribute"}));
  TRY_ASSIGN(const bool case_sensitive, flag_argument(given[0], false));
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  TRY_ASSIGN(const auto keys, keys_of(call, items->items, given[1], case_sensitive));
  std::vector<Value> kept;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!is_hashable(keys[i])) return call.fails("a value cannot be hashed");
    bool seen = false;
    for (size_t j = 0; j < i && !seen; ++j) {
      TRY_ASSIGN(seen, equal(call.budget, keys[j], keys[i]));
    }
    if (!seen) kept.push_back(items->items[i]);
  }
  return make_sequence(call.budget, Sequence::Kind::kGenerator, std::move(kept));
}

Result<Value> groupby(const FilterCall& call) {
  TRY_ASSIGN(const auto given,
             bind(call.arguments, call.name, {"attribute", "default", "case_sensitive"}, 1));
  TRY_ASSIGN(const bool case_sensitive, flag_argument(given[2], false));
  TRY_ASSIGN(const auto items, iterate(call.budget, call.input));
  std::vector<Value> groupers, keys;
  for (const Value& item : items->items) {
    TRY_ASSIGN(Value grouper, value_at_path(call.budget, item, *given[0], given[1]));
    TRY_ASSIGN(Value key, sort_key(call.budget, grouper, nullptr, case_sensitive));
    groupers.push_back(std::move(grouper));
    keys.push_back(std::move(key));
  }
  TRY_ASSIGN(const auto order_of, sorted_order(call.budget, keys, false));
  std::vector<Value> groups;
  for (size_t i = 0; i < order_of.size();) {
    std::vector<Value> members;
    const size_t begin = i;
    bool same = true;
    while (same) {
      members.push_back(items->items[order_of[i++]]);
      same = i < order_of.size();
      if (same) {
        TRY_ASSIGN(same, equal(call.budget, keys[order_of[begin]], keys[order_of[i]]));
      }
    }
    TRY_ASSIGN(const Value group,
               make_sequence(call.budget, Sequence::Kind::kList, std::move(members)));
    TRY_ASSIGN(Value pair, make_pair(call.budget, groupers[order_of[begin]], group));
    groups.push_back(std::move(pair));
  }
  return make_sequence(call.budget, Sequence::Kind::kList, std::move(groups));
}

// batch(n): rows of n. slice(n): n columns of nearly equal height.
Result<Value> batch(const FilterCall& call) {
  TRY_ASSIGN(const auto given, bind(call.arguments, call.name, {"count", "fill_with"}, 1));
  TRY_ASSIGN(const int64_t count, integer_argument(given[0], call.name, 1));
  if (count < 1) return call.fails("wants a positive count");
  TRY_ASSIGN(const auto all, iterate(call.budget, call.input));
  const auto& items = all->items;
  const bool fills = given[1] != nullptr && !given[1]->is_none();
  const auto size = static_cast<int64_t>(items.size());
  const bool rows = call.name == "batch";
  const int64_t groups = rows ? size / count + (size % count != 0) : count;
  TRY(call.budget.spend_memory(std::min(groups, INT64_MAX / 64) * 16));
  if (rows && fills && groups > 0)
    TRY(call.budget.spend_memory(std::min(count, INT64_MAX / 64) * 24));
  std::vector<Value> out;
  int64_t at = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t height =
        rows ? std::min(count, size - at) : size / count + (group < size % count);
    std::vector<Value> members(items.begin() + at, items.begin() + at + height);
    at += height;
    if (fills && rows && height < count)
      members.resize(static_cast<size_t>(count), *given[1]);
    else if (fills && !rows && group >= size % count && size % count != 0)
      members.push_back(*given[1]);
    TRY_ASSIGN(Value list_value,
               make_sequence(call.budget, Sequence::Kind::kList, std::move(members)));
    out.push_back(std::move(list_value));
  }
  return make_sequence(call.budget, Sequence::Kind::kGenerator, std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"length", length_filter}, {"count", length_filter}, {"items", items_filter},
    {"first", first},          {"last", last},           {"list", list},
    {"reverse", reverse},      {"sort", sort},           {"dictsort", dictsort},
    {"min", extreme},          {"max", extreme},         {"sum", sum},
    {"unique", unique},        {"groupby", groupby},     {"batch", batch},
    {"slice", batch},
};

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters)
    if (entry.name == name) return entry.function;
  return nullptr;
}

Result<Value> sort_key(Budget& budget, const Value& value, const Value* path, bool case_sensitive) {
  Value key = value;
  if (path != nullptr && !path->is_none()) {
    TRY_ASSIGN(key, value_at_path(budget, value, *path));
  }
  if (case_sensitive || !key.is_string()) return key;
  TRY(budget.spend_scan(key.text().size() * 4));
  return make_text(budget, key.text().rewritten(to_lower(key.text().view())));
}

Result<std::vector<size_t>> sorted_order(Budget& budget, const std::vector<Value>& keys,
                                         bool reverse) {
  std::vector<size_t> out(keys.size());
  std::iota(out.begin(), out.end(), size_t{0});
  Status failure;
  // After a failure every pair counts as equal, so the sort ends soon and in bounds.
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) {
    if (!failure) return false;
    const Result<bool> less =
        compare(budget, CompareOp::kLess, keys[reverse ? b : a], keys[reverse ? a : b]);
    if (!less) failure = less.error();
    return less.has_value() && *less;
  });
  if (!failure) return failure.error();
  return out;
}

}  // namespace pewter::jinja
