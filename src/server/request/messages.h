// The messages and tools of a chat request, brought into the form that chat templates expect:
//
//   developer            becomes system; several or late system messages become one leading one,
//                        joined by a blank line (unless strict)
//   content              parts become one text; images, video and audio are refused by their place
//   reasoning            and reasoning_content: both understood, templates get the second name
//   tool calls           arguments as JSON text become an object; function_call and role function,
//                        the older spelling, become tool calls and tool
//   billing lines        a system text that begins with x-anthropic-billing-header: changes with
//                        every request and is left out
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace pewter::server {

struct MessageOptions {
  bool strict = false;  // leave several or late system messages to the template
};

// Errors: kInvalidArgument, "messages[0].content[1]: …".
Result<Json> normalise_messages(const Json& messages, const MessageOptions& options);

// A list of tools as the template gets it: unchanged, or null when it is empty. Errors name the
// place: "tools[0].function.name: …".
Result<Json> check_tools(const Json& tools);

}  // namespace pewter::server
