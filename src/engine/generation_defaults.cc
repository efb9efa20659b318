#include "engine/generation_defaults.h"

#include "base/file.h"

namespace pewter {
namespace {

constexpr int64_t kFileLimit = int64_t{1} << 20;

// The member, or nullptr when it is absent or null.
const Json* member(const Json& config, std::string_view key) {
  const Json* value = config.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Error wrong(std::string_view key, const Json& value, std::string_view want) {
  return {ErrorCode::kCorruptData, str_cat(key, ": ", value.dump(), " is not ", want)};
}

Status read_number(const Json& config, std::string_view key, float& into) {
  const Json* value = member(config, key);
  if (value == nullptr) return {};
  if (!value->is_number()) return wrong(key, *value, "a number");
  into = static_cast<float>(value->as_double());
  return {};
}

Result<int32_t> token_id(std::string_view key, const Json& value) {
  if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() > INT32_MAX)
    return wrong(key, value, "a token id");
  return static_cast<int32_t>(value.as_integer());
}

}  // namespace

Result<GenerationDefaults> GenerationDefaults::parse(const Json& config) {
  if (!config.is_object()) return Error{ErrorCode::kCorruptData, "not a JSON object"};
  GenerationDefaults defaults;
  SamplingParams& sampling = defaults.sampling;
  TRY(read_number(config, "temperature", sampling.temperature));
  TRY(read_number(config, "top_p", sampling.top_p));
  TRY(read_number(config, "min_p", sampling.min_p));
  TRY(read_number(config, "repetition_penalty", sampling.repetition_penalty));
  TRY(read_number(config, "presence_penalty", sampling.presence_penalty));
  TRY(read_number(config, "frequency_penalty", sampling.frequency_penalty));
  if (const Json* value = member(config, "top_k")) {
    if (!value->is_integer() || value->as_integer() < -1 || value->as_integer() > INT32_MAX)
      return wrong("top_k", *value, "an integer from -1 on");
    sampling.top_k = static_cast<int32_t>(value->as_integer());
  }
  if (const Json* value = member(config, "do_sample")) {
    if (!value->is_bool()) return wrong("do_sample", *value, "true or false");
    if (!value->as_bool()) sampling.temperature = 0;
  }
  if (const Json* value = member(config, "eos_token_id")) {
    if (value->is_array()) {
      for (const Json& id : value->as_array()) {
        TRY_ASSIGN(const int32_t token, token_id("eos_token_id", id));
        defaults.eos_token_ids.push_back(token);
      }
    } else {
      TRY_ASSIGN(const int32_t token, token_id("eos_token_id", *value));
      defaults.eos_token_ids.push_back(token);
    }
  }
  const Status valid = sampling.validate(INT64_MAX);
  if (!valid) return Error{ErrorCode::kCorruptData, valid.error().message};
  return defaults;
}

Result<GenerationDefaults> GenerationDefaults::load(const std::string& directory) {
  constexpr std::string_view kName = "generation_config.json";
  const Result<std::string> text = read_file(str_cat(directory, "/", kName), kFileLimit);
  if (!text) {
    if (text.error().code == ErrorCode::kNotFound) return GenerationDefaults{};
    return text.error();
  }
  const Result<Json> config = Json::parse(*text);
  if (!config) return config.error().within(kName);
  Result<GenerationDefaults> defaults = parse(*config);
  if (!defaults) return defaults.error().within(kName);
  return defaults;
}

}  // namespace pewter
