// quantization_config of a config.json: what it lets each module be. The tensors decide how a
// module is read (linear_source.h); this is what they are checked against, and it tells what
// tensors cannot: how zero points are stored, and whether there are any.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "checkpoint/name_pattern.h"

namespace pewter {

enum class QuantMethod { kNone, kAutoRound, kGptq, kFp8 };

// How qzeros words spell a zero point z.
enum class ZeroStyle {
  kMinusOne,  // z − 1 (GPTQ v1, auto_round:auto_gptq): 0x77777777 when symmetric
  kPlain,     // z     (GPTQ v2, auto_round):            0x88888888
  kEither,    // the config does not say; both are read when symmetric, neither otherwise
};

// What the config says of one module.
struct ModuleQuant {
  enum class Claim {
    kSilent,     // nothing, or that it may be quantised: the tensor decides
    kFloat,      // it is stored as 16- or 32-bit floats
    kQuantised,  // it is quantised, said of this very module
    kForeign,    // quantised in a way Pewter does not read; `reason` says which
  };
  Claim claim = Claim::kSilent;
  std::string reason;  // which entry says so: for messages
  bool symmetric = true;
};

class QuantConfig {
 public:
  // config is config.json's object. kUnsupported names the method or the setting: AWQ,
  // compressed-tensors and ModelOpt checkpoints, other bit widths and group sizes, act-order.
  static Result<QuantConfig> parse(const Json& config);

  QuantMethod method() const { return method_; }
  // "gptq": how messages call it.
  const std::string& method_name() const { return method_name_; }
  bool is_int4() const {
    return method_ == QuantMethod::kAutoRound || method_ == QuantMethod::kGptq;
  }
  ZeroStyle zero_style() const { return zero_style_; }
  // fp8 with activation_scheme "static": every module brings its input_scale.
  bool static_activations() const { return static_activations_; }

  // module is canonical: layers.0.mlp.gate. One thread at a time.
  ModuleQuant module(std::string_view module) const;

 private:
  // An entry of extra_config or dynamic.
  struct Rule {
    std::string key;
    std::optional<NamePattern> pattern;  // none: the key is a module's canonical name
    bool anchored = false;               // the pattern must match from the start
    ModuleQuant outcome;
  };

  Status parse_auto_round(const Json& config);
  Status parse_gptq(const Json& config);
  Status parse_fp8(const Json& config);
  Status parse_int4_scheme(const Json& config);
  Status parse_zero_style(const Json& config);
  Status parse_extra_config(const Json& entries);
  Status parse_dynamic(const Json& entries);
  Status parse_skipped(const Json& config);
  // bits, group_size, sym and data_type of an override.
  ModuleQuant parse_override(const Json& entry, std::string_view key) const;
  bool inside_quantised_blocks(std::string_view module) const;

  QuantMethod method_ = QuantMethod::kNone;
  std::string method_name_ = "none";
  ZeroStyle zero_style_ = ZeroStyle::kEither;
  bool symmetric_ = true;
  bool static_activations_ = false;
  std::unordered_map<std::string, ModuleQuant> exact_;  // by canonical module name
  std::vector<Rule> rules_;                             // in the config's order
  std::unordered_set<std::string> skipped_;             // modules_to_not_convert, canonical
  std::vector<std::string> blocks_;                     // block_name_to_quantize, canonical
};

}  // namespace pewter
