// A model's chat template: turns a conversation into the text the model is prompted with, and tells
// which bytes of it are the client's.
//
// The template is Jinja (jinja/template.h). Messages are rendered as they come; merging system
// messages, parsing arguments and the like are the caller's.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/byte_range.h"
#include "text/jinja/template.h"

namespace pewter {

struct ChatTemplateInput {
  Json messages;  // an array of objects
  Json tools;     // an array, or null for none
  bool add_generation_prompt = true;
  Json kwargs;          // an object of further variables (enable_thinking …), or null
  Json special_tokens;  // an object of names and texts (bos_token …), or null; they count as the
                        // template's own words
  std::optional<std::tm> local_time;  // what strftime_now tells; absent: the clock's
  jinja::RenderLimits limits;
};

struct RenderedPrompt {
  std::string text;
  // Sorted, disjoint. Special tokens are to be recognised only outside: these bytes came from
  // messages, tools or kwargs, or were computed (JSON, numbers, dates); all others stand literally
  // in the template.
  std::vector<ByteRange> foreign;
};

class ChatTemplate {
 public:
  // Errors: kCorruptData or kUnsupported, "chat template, line 12: …".
  static Result<ChatTemplate> parse(std::string source);

  // May be called by several threads at once. Errors:
  //   kInvalidArgument    the template refused the conversation (raise_exception): the message is
  //                       its text and nothing else; or a text of the input is no valid UTF-8
  //   kUnsupported        the conversation does not have the shape the template relies on
  //   kResourceExhausted  a limit was passed; as the one before it, "chat template, line 12: …"
  Result<RenderedPrompt> render(const ChatTemplateInput& input) const;

  const std::string& source() const { return source_; }

 private:
  ChatTemplate(std::string source, jinja::Template parsed)
      : source_(std::move(source)), template_(std::move(parsed)) {}

  std::string source_;
  jinja::Template template_;
};

}  // namespace pewter
