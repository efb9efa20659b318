// How /v1/responses spells its answers: a response of reasoning, message and function_call items,
// or the numbered events that build it.
#pragma once

#include "server/answer/generation.h"

namespace pewter::server {

// `echo`: an object, what the response repeats of its request.
std::unique_ptr<ResponseFormat> make_responses_format(std::shared_ptr<const ServedModel> model,
                                                      const Json& echo);

}  // namespace pewter::server
