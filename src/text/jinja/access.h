// Reading values apart: attributes, items, slices, iteration, length.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace pewter::jinja {

// value.name. A method wins over a dictionary's key, as in Jinja. Undefined when there is neither;
// an error when value itself is undefined.
Result<Value> attribute(Budget& budget, const Value& value, std::string_view name);
// value[key]. The key wins over a method.
Result<Value> item(Budget& budget, const Value& value, const Value& key);
// value[start:stop:step]; none stands for an absent bound.
struct SliceBounds {
  Value start = None{}, stop = None{}, step = None{};
};
Result<Value> slice(Budget& budget, const Value& value, const SliceBounds& bounds);

// The items a for loop visits: of a dictionary its keys, of a string its characters, of an
// undefined value none. A generator is used up by it.
Result<std::shared_ptr<const Sequence>> iterate(Budget& budget, const Value& value);
Result<int64_t> length(const Value& value);
bool is_iterable(const Value& value);

// Whether values of this kind have a method of that name.
bool has_method(const Value& value, std::string_view name);
// Calls it: methods.cc for mappings and sequences, string_methods.cc for strings.
Result<Value> call_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments);
bool has_string_method(std::string_view name);
Result<Value> call_string_method(Budget& budget, const Text& self, std::string_view name,
                                 const Arguments& arguments);

}  // namespace pewter::jinja
