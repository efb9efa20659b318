#include "checkpoint/quant_config.h"

#include <algorithm>

#include "checkpoint/tensor_names.h"

namespace pewter {
namespace {

constexpr int64_t kBits = 4, kGroup = 128, kBlock = 128;

Error unsupported(std::string_view text) {
  return Error{ErrorCode::kUnsupported, str_cat("quantization_config: ", text)};
}
Error corrupt(std::string_view text) {
  return Error{ErrorCode::kCorruptData, str_cat("quantization_config: ", text)};
}

// A text member; empty when it is missing or no text.
std::string text_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}
bool is_true(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}
// Missing and null are what the caller says, anything else must be the number.
bool is_number(const Json* value, int64_t wanted, bool when_missing) {
  if (value == nullptr || value->is_null()) return when_missing;
  return value->is_integer() && value->as_integer() == wanted;
}

// "layers." and "model.language_model.layers" both become "layers".
std::string canonical_module(std::string_view name) {
  while (name.ends_with('.')) name.remove_suffix(1);
  std::string canonical = canonical_name(name);
  // A bare prefix names the whole text model.
  for (const std::string_view whole :
       {"model", "model.language_model", "language_model", "language_model.model"})
    if (canonical == whole || name == whole) return {};
  return canonical;
}

bool is_inside(std::string_view module, std::string_view parent) {
  return parent.empty() || module == parent ||
         (module.starts_with(parent) && module.substr(parent.size()).starts_with('.'));
}

}  // namespace

Result<QuantConfig> QuantConfig::parse(const Json& config) {
  QuantConfig result;
  const Json* quant = config.find("quantization_config");
  if (quant == nullptr || quant->is_null()) {
    const Json* text = config.find("text_config");
    quant = text != nullptr ? text->find("quantization_config") : nullptr;
  }
  if (quant == nullptr || quant->is_null()) return result;
  if (!quant->is_object()) return corrupt("is no object");

  const std::string method = text_of(*quant, "quant_method");
  result.method_name_ = method;
  if (method == "auto-round" || method == "auto_round" || method == "intel/auto-round") {
    result.method_ = QuantMethod::kAutoRound;
    TRY(result.parse_auto_round(*quant));
  } else if (method == "gptq") {
    result.method_ = QuantMethod::kGptq;
    TRY(result.parse_gptq(*quant));
  } else if (method == "fp8") {
    result.method_ = QuantMethod::kFp8;
    TRY(result.parse_fp8(*quant));
  } else if (method.empty()) {
    return corrupt("has no quant_method");
  } else {
    const std::string format = text_of(*quant, "format");
    return unsupported(str_cat("quant_method \"", method, "\"",
                               format.empty() ? "" : str_cat(" (", format, ")"),
                               " is not supported; auto-round, gptq and fp8 are"));
  }
  return result;
}

Status QuantConfig::parse_int4_scheme(const Json& config) {
  if (!is_number(config.find("bits"), kBits, false))
    return unsupported("bits is not 4: only 4-bit weights are supported");
  if (!is_number(config.find("group_size"), kGroup, false))
    return unsupported("group_size is not 128: only groups of 128 are supported");
  const std::string type = text_of(config, "data_type");
  if (!type.empty() && type != "int")
    return unsupported(str_cat("data_type \"", type, "\" is not supported; int is"));
  const Json* sym = config.find("sym");
  if (sym != nullptr && !sym->is_bool()) return corrupt("sym is neither true nor false");
  symmetric_ = sym == nullptr || sym->as_bool();
  return {};
}

Status QuantConfig::parse_auto_round(const Json& config) {
  TRY(parse_int4_scheme(config));
  TRY(parse_zero_style(config));
  if (const Json* blocks = config.find("block_name_to_quantize");
      blocks != nullptr && !blocks->is_null()) {
    std::vector<std::string> names;  // a list, or one text with commas
    if (blocks->is_string()) names.push_back(blocks->as_string());
    if (blocks->is_array())
      for (const Json& item : blocks->as_array())
        if (item.is_string()) names.push_back(item.as_string());
    for (const std::string& name : names) {
      for (size_t begin = 0; begin <= name.size();) {
        const size_t end = std::min(name.find(',', begin), name.size());
        std::string_view part = std::string_view(name).substr(begin, end - begin);
        while (part.starts_with(' ')) part.remove_prefix(1);
        while (part.ends_with(' ')) part.remove_suffix(1);
        if (!part.empty()) blocks_.push_back(canonical_module(part));
        begin = end + 1;
      }
    }
  }
  if (const Json* extra = config.find("extra_config"); extra != nullptr && !extra->is_null())
    TRY(parse_extra_config(*extra));
  return {};
}

// packing_format names the exporter, and with it the layout and the zero convention. Older files
// say "backend" instead; there a symmetric file of no named layout is GPTQ's, zeros either way.
Status QuantConfig::parse_zero_style(const Json& config) {
  std::string packing = text_of(config, "packing_format");
  const bool named = !packing.empty();
  if (!named) packing = text_of(config, "backend");
  const auto mentions = [&](const char* word) { return packing.find(word) != std::string::npos; };
  if (mentions("awq"))
    return unsupported(str_cat("the AWQ layout (", packing, ") is not supported"));
  if (mentions("marlin")) return unsupported(str_cat("the layout ", packing, " is not supported"));
  const std::string version = text_of(config, "checkpoint_format");
  if (version == "gptq_v2") {
    zero_style_ = ZeroStyle::kPlain;
  } else if (mentions("gptqmodel")) {
    zero_style_ = ZeroStyle::kEither;
  } else if (mentions("gptq") || version == "gptq") {
    zero_style_ = ZeroStyle::kMinusOne;
  } else if (named && packing == "auto_round") {
    zero_style_ = ZeroStyle::kPlain;
  } else if (named) {
    return unsupported(str_cat("packing_format \"", packing, "\" is not known"));
  }
  if (zero_style_ == ZeroStyle::kEither && !symmetric_)
    return unsupported(str_cat("asymmetric weights, and \"", packing,
                               "\" does not say whether zero points are stored as z or z - 1"));
  return {};
}

Status QuantConfig::parse_gptq(const Json& config) {
  TRY(parse_int4_scheme(config));
  if (is_true(config, "desc_act"))
    return unsupported("desc_act is true: activation order is not supported");
  const std::string version = text_of(config, "checkpoint_format");
  if (version.empty() || version == "gptq")
    zero_style_ = ZeroStyle::kMinusOne;
  else if (version == "gptq_v2")
    zero_style_ = ZeroStyle::kPlain;
  else
    return unsupported(
        str_cat("checkpoint_format \"", version, "\" is not supported; gptq and gptq_v2 are"));
  if (const std::string pack = text_of(config, "pack_dtype"); !pack.empty() && pack != "int32")
    return unsupported(str_cat("pack_dtype \"", pack, "\" is not supported; int32 is"));
  if (const Json* dynamic = config.find("dynamic"); dynamic != nullptr && !dynamic->is_null())
    TRY(parse_dynamic(*dynamic));
  return parse_skipped(config);
}

Status QuantConfig::parse_fp8(const Json& config) {
  const Json* block = config.find("weight_block_size");
  const bool per_block = block != nullptr && block->is_array() && block->as_array().size() == 2 &&
                         std::ranges::all_of(block->as_array(), [](const Json& extent) {
                           return is_number(&extent, kBlock, false);
                         });
  if (!per_block)
    return unsupported("weight_block_size is not [128, 128]: only those blocks are supported");
  if (is_true(config, "weight_per_tensor"))
    return unsupported("weight_per_tensor is true: only block scales are supported");
  if (const std::string fmt = text_of(config, "fmt"); !fmt.empty() && fmt != "e4m3")
    return unsupported(str_cat("fmt \"", fmt, "\" is not supported; e4m3 is"));
  const std::string scheme = text_of(config, "activation_scheme");
  if (!scheme.empty() && scheme != "dynamic" && scheme != "static")
    return corrupt(str_cat("activation_scheme \"", scheme, "\" is neither dynamic nor static"));
  static_activations_ = scheme == "static";
  return parse_skipped(config);
}

Status QuantConfig::parse_skipped(const Json& config) {
  const Json* list = config.find("modules_to_not_convert");
  if (list == nullptr || list->is_null()) return {};
  if (!list->is_array()) return corrupt("modules_to_not_convert is no list");
  for (const Json& item : list->as_array()) {
    if (!item.is_string()) return corrupt("modules_to_not_convert has an entry that is no text");
    skipped_.insert(canonical_module(item.as_string()));
  }
  return {};
}

ModuleQuant QuantConfig::parse_override(const Json& entry, std::string_view key) const {
  ModuleQuant outcome;
  outcome.symmetric = symmetric_;
  outcome.reason = str_cat("\"", key, "\"");
  if (const Json* sym = entry.find("sym"); sym != nullptr && sym->is_bool())
    outcome.symmetric = sym->as_bool();
  const std::string type = text_of(entry, "data_type");
  const Json* bits = entry.find("bits");
  if (is_number(bits, 16, false) || is_number(bits, 32, false) || type == "fp" || type == "float") {
    outcome.claim = ModuleQuant::Claim::kFloat;
  } else if (!is_number(bits, kBits, true) || !is_number(entry.find("group_size"), kGroup, true) ||
             (!type.empty() && type != "int") || is_true(entry, "desc_act") ||
             (!outcome.symmetric && zero_style_ == ZeroStyle::kEither)) {
    outcome.claim = ModuleQuant::Claim::kForeign;
    outcome.reason += str_cat(" asks for ", entry.dump());
  } else if (bits != nullptr && !bits->is_null()) {
    outcome.claim = ModuleQuant::Claim::kQuantised;
  }
  return outcome;
}

Status QuantConfig::parse_extra_config(const Json& entries) {
  if (!entries.is_object()) return corrupt("extra_config is no object");
  for (const auto& [key, entry] : entries.as_object()) {
    if (!entry.is_object()) return corrupt(str_cat("extra_config \"", key, "\" is no object"));
    ModuleQuant outcome = parse_override(entry, key);
    outcome.reason = "extra_config " + outcome.reason;
    // A dot alone makes no pattern of a module's name.
    if (key.find_first_of("*+?^$()[]{}|\\") == std::string::npos) {
      exact_.insert_or_assign(canonical_module(key), std::move(outcome));
    } else {
      Result<NamePattern> pattern = NamePattern::compile(key);
      if (!pattern) return pattern.error().within("quantization_config: extra_config");
      rules_.push_back({key, std::move(pattern).value(), /*anchored=*/false, std::move(outcome)});
    }
  }
  return {};
}

// "-:regex" leaves modules out; any other key is a regex whose modules are quantised as its entry
// changes it. An empty entry says nothing: official files have one for the head, which is BF16.
Status QuantConfig::parse_dynamic(const Json& entries) {
  if (!entries.is_object()) return corrupt("dynamic is no object");
  for (const auto& [key, entry] : entries.as_object()) {
    if (!entry.is_object()) return corrupt(str_cat("dynamic \"", key, "\" is no object"));
    std::string_view expression = key;
    const bool excludes = expression.starts_with("-:");
    if (excludes || expression.starts_with("+:")) expression.remove_prefix(2);
    Result<NamePattern> pattern = NamePattern::compile(expression);
    if (!pattern) return pattern.error().within("quantization_config: dynamic");
    ModuleQuant outcome = parse_override(entry, key);
    if (excludes) outcome.claim = ModuleQuant::Claim::kFloat;
    outcome.reason = "dynamic " + outcome.reason;
    rules_.push_back({key, std::move(pattern).value(), /*anchored=*/true, std::move(outcome)});
  }
  return {};
}

bool QuantConfig::inside_quantised_blocks(std::string_view module) const {
  if (blocks_.empty()) return true;
  return std::ranges::any_of(blocks_, [&](const std::string& b) { return is_inside(module, b); });
}

ModuleQuant QuantConfig::module(std::string_view module) const {
  if (const auto at = exact_.find(std::string(module)); at != exact_.end()) return at->second;
  if (!rules_.empty()) {
    const std::vector<std::string> spellings = name_spellings(module);
    for (const Rule& rule : rules_)
      for (const std::string& name : spellings)
        if (rule.anchored ? rule.pattern->matches_start_of(name) : rule.pattern->found_in(name))
          return rule.outcome;
  }
  ModuleQuant outcome;
  outcome.symmetric = symmetric_;
  // A skipped name covers what is below it.
  for (std::string_view part = module; !part.empty();
       part = part.substr(0, part.find('.') == std::string_view::npos ? 0 : part.rfind('.')))
    if (skipped_.contains(std::string(part))) {
      outcome.claim = ModuleQuant::Claim::kFloat;
      outcome.reason = "modules_to_not_convert";
      return outcome;
    }
  // The drafting layer is outside the blocks even where newer exporters quantise it.
  if (!inside_quantised_blocks(module) && !module.starts_with("mtp.")) {
    outcome.claim = ModuleQuant::Claim::kFloat;
    outcome.reason = "block_name_to_quantize";
  }
  return outcome;
}

}  // namespace pewter
