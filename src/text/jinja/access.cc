#include "text/jinja/access.h"

#include <algorithm>

#include "text/jinja/arithmetic.h"
#include "text/jinja/print.h"

namespace pewter::jinja {
namespace {

using Kind = Value::Kind;

Value missing_attribute(const Value& value, std::string_view name) {
  return Value::undefined(str_cat("'", value.type_name(), value.is_dict() ? " object" : "",
                                  "' has no attribute ", quoted(name)));
}

Value loop_attribute(Loop& loop, std::string_view name, bool& found) {
  const auto& items = loop.items->items;
  const auto size = static_cast<int64_t>(items.size());
  const int64_t index = loop.index;
  found = true;
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 >= size);
  if (name == "length") return Value(size);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "depth") return Value(loop.depth + 1);
  if (name == "depth0") return Value(loop.depth);
  if (name == "previtem")
    return index > 0 ? items[static_cast<size_t>(index - 1)]
                     : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? items[static_cast<size_t>(index + 1)]
                            : Value::undefined("there is no next item");
  found = false;
  return Value();
}

// The item at an integer index, counted from the end when negative; undefined past the ends.
Result<Value> indexed(Budget& budget, const Value& value, int64_t index) {
  if (value.is_string()) {
    const Text& text = value.text();
    TRY(budget.spend_scan(text.size()));
    const auto offsets = code_point_offsets(text.view());
    const auto size = static_cast<int64_t>(offsets.size()) - 1;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return Value::undefined("string index out of range");
    const auto at = static_cast<size_t>(index);
    return make_text(budget, text.part(offsets[at], offsets[at + 1]));
  }
  const auto& items = value.sequence()->items;
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size)
    return Value::undefined(str_cat(value.type_name(), " object has no element ", index));
  return items[static_cast<size_t>(index)];
}

struct Range {
  int64_t start, stop, step, count;
};

// Python's slice.indices(), counted.
Result<Range> resolve(const SliceBounds& bounds, int64_t size) {
  for (const Value* bound : {&bounds.start, &bounds.stop, &bounds.step}) {
    if (bound->is_undefined()) return undefined_error(*bound);
    if (!bound->is_none() && !bound->is_int64())
      return Error{ErrorCode::kUnsupported, "slice indices must be integers or None"};
  }
  const int64_t step = bounds.step.is_none() ? 1 : bounds.step.as_int64();
  if (step == 0) return Error{ErrorCode::kUnsupported, "slice step cannot be zero"};
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  const auto clip = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    int64_t at = bound.as_int64();
    if (at < 0) at = std::max(at, -size - 1) + size;
    return std::clamp(at, low, std::max(low, high));
  };
  const int64_t start = clip(bounds.start, step < 0 ? high : low);
  const int64_t stop = clip(bounds.stop, step < 0 ? low : high);
  const int64_t distance = step < 0 ? start - stop : stop - start;
  if (distance <= 0) return Range{start, stop, step, 0};
  const uint64_t stride = step < 0 ? 0 - static_cast<uint64_t>(step) : static_cast<uint64_t>(step);
  return Range{start, stop, step,
               static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1};
}

// Methods that change a value are refused by Jinja's sandbox, where they count as undefined.
bool is_forbidden_method(const Value& value, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (value.is_dict()) return among(kDict);
  return value.is_sequence() && value.sequence()->kind == Sequence::Kind::kList && among(kList);
}

Value forbidden(const Value& value, std::string_view name) {
  return Value::undefined(str_cat("access to attribute ", quoted(name), " of '", value.type_name(),
                                  "' object is unsafe."));
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  if (value.is_string()) return has_string_method(name);
  if (value.is_dict())
    return name == "items" || name == "keys" || name == "values" || name == "get" || name == "copy";
  if (value.is_sequence() && value.sequence()->has_index())
    return name == "index" || name == "count" ||
           (name == "copy" && value.sequence()->kind == Sequence::Kind::kList);
  if (value.kind() == Kind::kLoop) return name == "cycle" || name == "changed";
  return false;
}

Result<Value> attribute(Budget& budget, const Value& value, std::string_view name) {
  if (value.is_undefined()) return undefined_error(value);
  if (has_method(value, name)) {
    TRY(budget.spend_memory(sizeof(Method)));
    return Value(std::make_shared<const Method>(Method{value, std::string(name)}));
  }
  if (is_forbidden_method(value, name)) return forbidden(value, name);
  switch (value.kind()) {
    case Kind::kDict:
      TRY(budget.spend_steps(1));
      if (const Value* found = value.dict().find(name)) return *found;
      break;
    case Kind::kNamespace:
      for (const auto& [attribute_name, attribute_value] : value.as_namespace()->attributes)
        if (attribute_name == name) return attribute_value;
      break;
    case Kind::kLoop: {
      bool found = false;
      Value result = loop_attribute(*value.loop(), name, found);
      if (found) return result;
      break;
    }
    case Kind::kMacro:
      if (name == "name") return make_text(budget, Text::authored(value.macro()->node->name));
      break;
    default:
      break;
  }
  return missing_attribute(value, name);
}

Result<Value> item(Budget& budget, const Value& value, const Value& key) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.is_dict() && is_hashable(key)) {
    TRY(budget.spend_steps(1 +
                           static_cast<int64_t>(key.is_string() ? 0 : value.dict().items.size())));
    if (const Value* found = value.dict().find(key)) return *found;
  }
  const bool has_index =
      value.is_string() || (value.is_sequence() && value.sequence()->has_index());
  if (has_index && key.is_int64()) return indexed(budget, value, key.as_int64());
  if (key.is_string()) return attribute(budget, value, key.text().view());
  return Value::undefined(str_cat(value.type_name(), " object has no such element"));
}

Result<Value> slice(Budget& budget, const Value& value, const SliceBounds& bounds) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.is_string()) {
    const Text& text = value.text();
    TRY(budget.spend_scan(text.size()));
    const auto offsets = code_point_offsets(text.view());
    TRY_ASSIGN(const Range range, resolve(bounds, static_cast<int64_t>(offsets.size()) - 1));
    if (range.step == 1) {
      const auto begin = static_cast<size_t>(range.start);
      return make_text(
          budget, text.part(offsets[begin], offsets[begin + static_cast<size_t>(range.count)]));
    }
    TRY(budget.spend_steps(range.count));
    TextBuilder out(budget.limits().max_output_bytes);
    for (int64_t i = 0; i < range.count; ++i) {
      const auto at = static_cast<size_t>(range.start + i * range.step);
      out.append_part(text, offsets[at], offsets[at + 1]);
    }
    Text result = out.take();
    result.markup = text.markup;
    return make_text(budget, std::move(result));
  }
  if (!value.is_sequence() || !value.sequence()->has_index())
    return Error{ErrorCode::kUnsupported,
                 str_cat("'", value.type_name(), "' object is not subscriptable by a slice")};
  const auto& items = value.sequence()->items;
  TRY_ASSIGN(const Range range, resolve(bounds, static_cast<int64_t>(items.size())));
  std::vector<Value> part;
  part.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i)
    part.push_back(items[static_cast<size_t>(range.start + i * range.step)]);
  if (value.sequence()->kind != Sequence::Kind::kRange)
    return make_sequence(budget, value.sequence()->kind, std::move(part));
  // In unsigned arithmetic: the bound past the last item may lie outside int64.
  const RangeBounds& old = value.sequence()->range;
  const auto at = [&](int64_t index) {
    return static_cast<int64_t>(static_cast<uint64_t>(old.start) +
                                static_cast<uint64_t>(index) * static_cast<uint64_t>(old.step));
  };
  const auto step =
      static_cast<int64_t>(static_cast<uint64_t>(old.step) * static_cast<uint64_t>(range.step));
  return make_range(budget, {at(range.start), at(range.stop), step}, std::move(part));
}

Result<std::shared_ptr<const Sequence>> iterate(Budget& budget, const Value& value) {
  TRY(budget.spend_steps(1));
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kSequence: {
      const auto& sequence = value.sequence();
      if (sequence->kind != Sequence::Kind::kGenerator) return sequence;
      if (sequence->consumed) break;
      sequence->consumed = true;
      return sequence;
    }
    case Kind::kDict:
      for (const auto& [key, unused] : value.dict().items) items.push_back(key);
      break;
    case Kind::kString: {
      const Text& text = value.text();
      TRY(budget.spend_memory(static_cast<int64_t>(text.size() * (sizeof(Value) + sizeof(Text)))));
      const auto offsets = code_point_offsets(text.view());
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        Text character = text.part(offsets[i], offsets[i + 1]);
        character.markup = false;  // iterating over markup yields plain strings
        items.emplace_back(std::move(character));
      }
      break;
    }
    default:
      return Error{ErrorCode::kUnsupported,
                   str_cat("'", value.type_name(), "' object is not iterable")};
  }
  TRY_ASSIGN(const Value list, make_sequence(budget, Sequence::Kind::kList, std::move(items)));
  return list.sequence();
}

Result<int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return int64_t{0};
    case Kind::kString:
      return count_code_points(value.text().view());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().items.size());
    case Kind::kSequence:
      if (value.sequence()->has_length())
        return static_cast<int64_t>(value.sequence()->items.size());
      break;
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop()->items->items.size());
    default:
      break;
  }
  return Error{ErrorCode::kUnsupported,
               str_cat("object of type '", value.type_name(), "' has no len()")};
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() || value.is_sequence() ||
         value.kind() == Kind::kLoop;
}

}  // namespace pewter::jinja
