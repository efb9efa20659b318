// The filters and tests of the language, by name. They live by subject: filters_text.cc,
// filters_sequence.cc, filters_select.cc, filters_value.cc and tests_table.cc.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/interpreter.h"

namespace pewter::jinja {

struct FilterCall {
  Interpreter& interpreter;
  Budget& budget;
  std::string_view name;
  const Value& input;
  const Arguments& arguments;

  Error fails(std::string_view what) const {
    return Error{ErrorCode::kUnsupported, str_cat("filter '", name, "': ", what)};
  }
};
using FilterFunction = Result<Value> (*)(const FilterCall&);
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

// One table a file.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_select_filter(std::string_view name);
FilterFunction find_value_filter(std::string_view name);

// Null when there is none.
FilterFunction find_filter(std::string_view name);
bool has_test(std::string_view name);

// The value that attribute= names: "a.b.0" goes through a, b and item 0. An undefined value on the
// way is replaced by `otherwise` (unless null or none), or else an error; at the end it is no
// error.
Result<Value> value_at_path(Budget& budget, const Value& value, const Value& path,
                            const Value* otherwise = nullptr);

// What sort, unique, min and their like compare: the value or its attribute, in lower case unless
// case_sensitive.
Result<Value> sort_key(Budget& budget, const Value& value, const Value* path, bool case_sensitive);
// Indexes of keys in ascending (or descending) order, equal ones in place.
Result<std::vector<size_t>> sorted_order(Budget& budget, const std::vector<Value>& keys,
                                         bool reverse);

}  // namespace pewter::jinja
