#include "checkpoint/tensor_names.h"

#include <array>

namespace pewter {
namespace {

struct Prefix {
  std::string_view written, canonical;
};

// The first match is taken, so longer prefixes stand before those they begin with.
constexpr std::array kPrefixes = {
    Prefix{"model.language_model.", ""},
    Prefix{"language_model.lm_head.", "lm_head."},
    Prefix{"language_model.mtp.", "mtp."},
    Prefix{"language_model.model.", ""},
    Prefix{"model.mtp.", "mtp."},
    Prefix{"model.visual.", "visual."},
    Prefix{"model.vision_tower.", "visual."},
    Prefix{"vision_tower.", "visual."},
    Prefix{"model.", ""},
};

}  // namespace

std::string canonical_name(std::string_view name) {
  for (const auto& [written, canonical] : kPrefixes)
    if (name.starts_with(written))
      return std::string(canonical).append(name.substr(written.size()));
  // A config names the module itself: nothing follows.
  if (name == "language_model.lm_head") return "lm_head";
  return std::string(name);
}

std::vector<std::string> name_spellings(std::string_view canonical) {
  std::vector<std::string> names = {std::string(canonical)};
  const bool head = canonical == "lm_head" || canonical.starts_with("lm_head.");
  const bool mtp = canonical.starts_with("mtp.");
  if (mtp) {
    names.push_back("model." + names[0]);
    return names;
  }
  if (head) {
    names.push_back("language_model." + names[0]);
    return names;
  }
  for (const char* prefix : {"model.language_model.", "model.", "language_model.model."})
    names.push_back(prefix + names[0]);
  return names;
}

}  // namespace pewter
