// GET /v1/models and /v1/models/NAME, for clients of OpenAI and, by the last fields, of Anthropic.
#include <algorithm>
#include <array>
#include <ctime>

#include "server/endpoints.h"

namespace pewter::server {
namespace {

// 2026-11-30T12:00:00Z
std::string utc_text(int64_t unix_time) {
  const auto time = static_cast<std::time_t>(unix_time);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  std::array<char, 32> text;
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

Json card(const ServedModel& model, const std::string& name) {
  Json card;
  card.set("id", name);
  card.set("object", "model");
  card.set("created", model.created);
  card.set("owned_by", "pewter");
  card.set("root", model.name());
  card.set("parent", nullptr);
  card.set("max_model_len", model.engine->max_context());
  card.set("type", "model");
  card.set("display_name", name);
  card.set("created_at", utc_text(model.created));
  return card;
}

}  // namespace

Result<Outcome> list_models(const HttpRequest&, const Model& model) {
  Json::Array data;
  for (const std::string& name : model->names) data.push_back(card(*model, name));
  Json list;
  list.set("object", "list");
  list.set("data", std::move(data));
  list.set("has_more", false);
  list.set("first_id", model->names.front());
  list.set("last_id", model->names.back());
  return Outcome(HttpResponse{.body = list.dump()});
}

Result<Outcome> show_model(const HttpRequest& request, const Model& model) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  TRY(model->check_name(name));
  return Outcome(HttpResponse{.body = card(*model, name).dump()});
}

}  // namespace pewter::server
