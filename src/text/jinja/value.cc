#include "text/jinja/value.h"

#include <algorithm>
#include <cstdlib>

#include "base/utf8.h"
#include "text/jinja/compare.h"

namespace pewter::jinja {
namespace {

constexpr size_t kIndexFrom = 16;  // dictionaries smaller than this are searched item by item

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.value_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

double Value::as_double() const {
  if (is_float()) return get<double>();
  if (kind() == Kind::kBigInteger) return std::strtod(big_digits().c_str(), nullptr);
  return static_cast<double>(as_int64());
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInteger:
      return as_int64() != 0;
    case Kind::kFloat:
      return as_double() != 0.0;
    case Kind::kString:
      return !text().empty();
    case Kind::kSequence:  // a generator is an object like any other: true even when empty
      return !sequence()->has_length() || !sequence()->items.empty();
    case Kind::kDict:
      return !dict().items.empty();
    default:
      return true;
  }
}

int Value::depth() const {
  if (is_sequence()) return sequence()->depth;
  if (is_dict()) return dict().depth;
  if (kind() == Kind::kMethod) return method().self.depth() + 1;
  return 0;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"Undefined",
                                                "NoneType",
                                                "bool",
                                                "int",
                                                "int",
                                                "float",
                                                "str",
                                                "",
                                                "dict",
                                                "Namespace",
                                                "LoopContext",
                                                "Macro",
                                                "builtin_function_or_method",
                                                "function"};
  static constexpr std::string_view kSequences[] = {
      "list", "tuple", "range", "dict_items", "dict_keys", "dict_values", "generator"};
  return is_sequence() ? kSequences[static_cast<size_t>(sequence()->kind)] : kNames[value_.index()];
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &items[found->second].second;
  }
  for (const auto& [name, value] : items)
    if (name.is_string() && name.text().bytes == key) return &value;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.text().view());
  for (const auto& [name, value] : items)
    if (!name.is_string() && keys_equal(name, key)) return &value;
  return nullptr;
}

void Dict::build_index() {
  if (items.size() < kIndexFrom) return;
  for (size_t i = 0; i < items.size(); ++i)
    if (items[i].first.is_string()) index_.emplace(items[i].first.text().view(), i);
}

Result<Value> make_text(Budget& budget, Text text) {
  if (static_cast<int64_t>(text.size()) > budget.limits().max_output_bytes)
    return budget.too_long();
  TRY(budget.spend_memory(
      static_cast<int64_t>(sizeof(Text) + text.size() + text.foreign.size() * sizeof(ByteRange))));
  return Value(std::move(text));
}

Result<Value> make_text(Budget& budget, TextBuilder& builder) {
  if (builder.overflowed()) return budget.too_long();
  return make_text(budget, builder.take());
}

namespace {

Result<Value> finish(Budget& budget, Sequence sequence) {
  TRY(budget.spend_memory(
      static_cast<int64_t>(sizeof(Sequence) + sequence.items.size() * sizeof(Value))));
  for (const Value& item : sequence.items)
    sequence.depth = std::max(sequence.depth, item.depth() + 1);
  if (sequence.depth > budget.limits().max_value_depth) return budget.too_deep();
  return Value(std::make_shared<const Sequence>(std::move(sequence)));
}

}  // namespace

Result<Value> make_sequence(Budget& budget, Sequence::Kind kind, std::vector<Value> items) {
  return finish(budget, Sequence{.kind = kind, .items = std::move(items)});
}

Result<Value> make_range(Budget& budget, const RangeBounds& range, std::vector<Value> items) {
  return finish(
      budget, Sequence{.kind = Sequence::Kind::kRange, .items = std::move(items), .range = range});
}

Result<Value> make_dict(Budget& budget, std::vector<Dict::Item> items) {
  TRY(budget.spend_memory(
      static_cast<int64_t>(sizeof(Dict) + items.size() * (sizeof(Dict::Item) + 32))));
  auto dict = std::make_shared<Dict>();
  dict->items.reserve(items.size());
  std::unordered_map<std::string_view, size_t> seen;  // views of texts that the items share
  for (Dict::Item& item : items) {
    size_t at = dict->items.size();
    if (item.first.is_string()) {
      at = seen.emplace(item.first.text().view(), at).first->second;
    } else {
      TRY(budget.spend_steps(static_cast<int64_t>(dict->items.size())));
      for (size_t i = 0; i < dict->items.size(); ++i)
        if (!dict->items[i].first.is_string() && keys_equal(dict->items[i].first, item.first))
          at = i;
    }
    dict->depth = std::max({dict->depth, item.first.depth() + 1, item.second.depth() + 1});
    if (at < dict->items.size())
      dict->items[at].second = std::move(item.second);
    else
      dict->items.push_back(std::move(item));
  }
  if (dict->depth > budget.limits().max_value_depth) return budget.too_deep();
  dict->build_index();
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Result<Value> make_pair(Budget& budget, const Value& first, const Value& second) {
  return make_sequence(budget, Sequence::Kind::kTuple, {first, second});
}

namespace {

Result<Value> text_of(Budget& budget, std::string_view text, Origin origin) {
  if (!is_valid_utf8(text)) return Error{ErrorCode::kInvalidArgument, "a text is not valid UTF-8"};
  return make_text(budget,
                   origin == Origin::kClient ? Text::from_client(text) : Text::authored(text));
}

Result<Value> from_json_at(Budget& budget, const Json& json, Origin origin, int depth) {
  if (depth > budget.limits().max_value_depth) return budget.too_deep();
  TRY(budget.spend_steps(1));
  switch (json.type()) {
    case Json::Type::kNull:
      return Value(None{});
    case Json::Type::kBool:
      return Value(json.as_bool());
    case Json::Type::kInteger:
      return Value(json.as_integer());
    case Json::Type::kBigInteger:
      return Value(std::make_shared<const std::string>(json.as_big_integer().digits));
    case Json::Type::kFloat:
      return Value(json.as_double());
    case Json::Type::kString:
      return text_of(budget, json.as_string(), origin);
    case Json::Type::kArray: {
      std::vector<Value> items;
      items.reserve(json.as_array().size());
      for (const Json& item : json.as_array()) {
        TRY_ASSIGN(Value value, from_json_at(budget, item, origin, depth + 1));
        items.push_back(std::move(value));
      }
      return make_sequence(budget, Sequence::Kind::kList, std::move(items));
    }
    case Json::Type::kObject: {
      std::vector<Dict::Item> items;
      items.reserve(json.as_object().size());
      for (const auto& [name, item] : json.as_object()) {
        TRY_ASSIGN(Value key, text_of(budget, name, origin));
        TRY_ASSIGN(Value value, from_json_at(budget, item, origin, depth + 1));
        items.emplace_back(std::move(key), std::move(value));
      }
      return make_dict(budget, std::move(items));
    }
  }
  return Value();
}

}  // namespace

Result<Value> from_json(Budget& budget, const Json& json, Origin origin) {
  return from_json_at(budget, json, origin, 1);
}

}  // namespace pewter::jinja
