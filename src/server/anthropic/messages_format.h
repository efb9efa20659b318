// How /v1/messages spells its answers: a message of thinking, text and tool_use blocks, or the
// events that build it.
#pragma once

#include "server/answer/generation.h"

namespace pewter::server {

std::unique_ptr<ResponseFormat> make_messages_format(std::shared_ptr<const ServedModel> model);

}  // namespace pewter::server
