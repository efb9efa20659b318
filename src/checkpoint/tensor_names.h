// Files of one model spell the same parameter in several ways; inside Pewter it has one name.
//
//   in the file                                        canonical
//   model.language_model.X, language_model.model.X,    X        (layers.0.…, embed_tokens.weight,
//   model.X                                                      norm.weight)
//   language_model.lm_head.X, lm_head.X                lm_head.X
//   mtp.X, model.mtp.X, language_model.mtp.X           mtp.X
//   model.visual.X, visual.X, vision_tower.X           visual.X
//
// Configs name modules with any of these prefixes too, not always the file's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pewter {

std::string canonical_name(std::string_view name);

// The spellings a file or a config may use for a canonical name, itself among them: what a config's
// regular expressions are tried on.
std::vector<std::string> name_spellings(std::string_view canonical);

}  // namespace pewter
