// The endpoints that need a model, one file each. An endpoint is a function from a request and the
// model to an outcome; it runs on a worker, knows no connection, and can be tested with strings.
#pragma once

#include <variant>

#include "server/answer/generation.h"

namespace pewter::server {

using Model = std::shared_ptr<const ServedModel>;
// An answer, or what has to be generated for one.
using Outcome = std::variant<HttpResponse, GenerationPlan>;
using Endpoint = Result<Outcome> (*)(const HttpRequest& request, const Model& model);

Result<Outcome> chat_completions(const HttpRequest& request, const Model& model);
Result<Outcome> completions(const HttpRequest& request, const Model& model);
Result<Outcome> tokenize(const HttpRequest& request, const Model& model);
Result<Outcome> detokenize(const HttpRequest& request, const Model& model);
Result<Outcome> apply_template(const HttpRequest& request, const Model& model);
Result<Outcome> list_models(const HttpRequest& request, const Model& model);
Result<Outcome> messages(const HttpRequest& request, const Model& model);
Result<Outcome> count_message_tokens(const HttpRequest& request, const Model& model);
Result<Outcome> responses(const HttpRequest& request, const Model& model);
Result<Outcome> show_model(const HttpRequest& request, const Model& model);  // /v1/models/NAME

// Says once for each field of this name that nobody understands it.
void log_unread(const std::vector<std::string>& fields);

}  // namespace pewter::server
