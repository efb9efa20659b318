// Texts of a grammar, drawn at random token by token from its masks, as a model without sense
// would.
#pragma once

#include <optional>

#include "base/rng.h"
#include "grammar/matcher.h"

namespace pewter::test {

// Every byte as a token, id byte + 1 (0 is a control token), then pieces of JSON and of tool calls.
std::vector<std::string> small_vocabulary();

// A whole text; none when it does not end within most_tokens. Closing quotes and brackets are drawn
// more often than others, so that texts end.
std::optional<std::string> random_text(const std::shared_ptr<const grammar::TokenGrammar>& grammar,
                                       Rng& rng, int most_tokens = 400);

}  // namespace pewter::test
