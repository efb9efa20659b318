#include "server/endpoint_table.h"

#include <array>

namespace pewter::server {
namespace {

constexpr auto kEndpoints = std::to_array<EndpointEntry>({
    {"POST", "/v1/chat/completions", "Answers a chat, whole or streamed", "ChatRequest",
     "ChatCompletion", true, &chat_completions},
    {"POST", "/v1/completions", "Goes on with prompts as they are", "CompletionRequest",
     "Completion", true, &completions},
    {"POST", "/v1/responses", "Answers a conversation of items, without a memory",
     "ResponsesRequest", "Response", true, &responses},
    {"POST", "/v1/messages", "Answers a chat in Anthropic's form", "MessagesRequest", "Message",
     true, &messages},
    {"POST", "/v1/messages/count_tokens", "Tells how long the prompt of a message is",
     "MessagesRequest", "MessageTokens", false, &count_message_tokens},
    {"GET", "/v1/models", "Lists the names of the model", "", "ModelList", false, &list_models},
    {"GET", "/v1/models/{model}", "Shows one of them", "", "Model", false, &show_model},
    {"POST", "/tokenize", "Turns text or messages into tokens", "TokenizeRequest", "Tokens", false,
     &tokenize},
    {"POST", "/detokenize", "Turns tokens into text", "DetokenizeRequest", "Text", false,
     &detokenize},
    {"POST", "/apply-template", "Shows the prompt that messages become", "TemplateRequest",
     "Prompt", false, &apply_template},
    {"GET", "/health", "Tells whether requests are answered", "", "Health", false, nullptr},
    {"GET", "/v1/health", "The same", "", "Health", false, nullptr},
    {"GET", "/ping", "The same", "", "Health", false, nullptr},
    {"GET", "/version", "Tells the server's version", "", "Version", false, nullptr},
    {"GET", "/openapi.json", "This description", "", "OpenApi", false, nullptr},
});

}  // namespace

std::span<const EndpointEntry> endpoint_table() { return kEndpoints; }

}  // namespace pewter::server
