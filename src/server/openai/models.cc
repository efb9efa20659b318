// GET /v1/models and /v1/models/NAME
#include <algorithm>

#include "server/openai/endpoints.h"

namespace pewter::server {
namespace {

Json card(const ServedModel& model, const std::string& name) {
  Json card;
  card.set("id", name);
  card.set("object", "model");
  card.set("created", model.created);
  card.set("owned_by", "pewter");
  card.set("root", model.name());
  card.set("parent", nullptr);
  card.set("max_model_len", model.engine->max_context());
  return card;
}

}  // namespace

Result<Outcome> list_models(const HttpRequest&, const Model& model) {
  Json::Array data;
  for (const std::string& name : model->names) data.push_back(card(*model, name));
  Json list;
  list.set("object", "list");
  list.set("data", std::move(data));
  return Outcome(HttpResponse{.body = list.dump()});
}

Result<Outcome> show_model(const HttpRequest& request, const Model& model) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  TRY(model->check_name(name));
  return Outcome(HttpResponse{.body = card(*model, name).dump()});
}

}  // namespace pewter::server
