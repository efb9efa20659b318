// POST /tokenize and /detokenize, with the fields of vLLM and of llama.cpp side by side; and
// /apply-template, llama.cpp's.
#include "server/answer/json_pieces.h"
#include "server/endpoints.h"
#include "server/openai/schema.h"

namespace pewter::server {

Result<Outcome> tokenize(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(const TokenizeRequest request, parse_tokenize_request(http.body, model->schema));
  TRY(model->check_name(request.model));
  std::vector<int32_t> ids;
  if (request.chat) {
    TRY_ASSIGN(const RenderedPrompt prompt, model->render(*request.chat));
    TRY_ASSIGN(ids, model->tokenizer->encode_prompt(prompt.text, prompt.foreign));
  } else {
    TRY_ASSIGN(ids, model->tokenizer->encode(request.text));
  }
  std::string body = str_cat("{\"count\":", ids.size(),
                             ",\"max_model_len\":", model->engine->max_context(), ",\"tokens\":");
  append_ids(body, ids);
  if (request.with_pieces) {
    body += ",\"token_strs\":[";
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) body += ',';
      append_json_string(body, token_text(*model->tokenizer, ids[i]));
    }
    body += ']';
  }
  body += '}';
  return Outcome(HttpResponse{.body = std::move(body)});
}

Result<Outcome> detokenize(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(const DetokenizeRequest request, parse_detokenize_request(http.body));
  TRY(model->check_name(request.model));
  for (const int32_t id : request.tokens)
    if (!model->tokenizer->has(id))
      return bad_request(str_cat("tokens: there is no token with the id ", id));
  std::string text;
  append_json_string(text, model->tokenizer->decode(request.tokens, /*skip_special=*/false));
  return Outcome(HttpResponse{.body = str_cat("{\"prompt\":", text, ",\"content\":", text, "}")});
}

Result<Outcome> apply_template(const HttpRequest& http, const Model& model) {
  TRY_ASSIGN(const TokenizeRequest request, parse_tokenize_request(http.body, model->schema));
  TRY(model->check_name(request.model));
  if (!request.chat) return bad_request("messages: missing");
  TRY_ASSIGN(const RenderedPrompt prompt, model->render(*request.chat));
  std::string body = "{\"prompt\":";
  append_json_string(body, prompt.text);
  return Outcome(HttpResponse{.body = body + "}"});
}

}  // namespace pewter::server
