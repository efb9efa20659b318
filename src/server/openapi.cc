#include "server/openapi.h"

#include <algorithm>

#include "server/endpoint_table.h"
#include "server/openapi_schemas.h"

namespace pewter::server {
namespace {

constexpr std::string_view kParameter = "{model}";

Json reference(std::string_view schema) {
  Json json;
  json.set("$ref", str_cat("#/components/schemas/", schema));
  return json;
}

Json object_of(std::string_view key, Json value) {
  Json json;
  json.set(key, std::move(value));
  return json;
}

// Null counts as absent wherever a request has a field.
Json or_null(const Json& schema) {
  Json::Array both;
  both.push_back(schema);
  both.push_back(object_of("type", "null"));
  return object_of("anyOf", Json(std::move(both)));
}

bool is_required(const Json& schema, const std::string& name) {
  const Json* required = schema.find("required");
  return required != nullptr &&
         std::ranges::find(required->as_array(), Json(name)) != required->as_array().end();
}

// The schema of a request with the groups of fields it names: "include": ["Generation"].
Json with_groups(const Json& schema, const Json& groups) {
  Json properties(Json::Object{}), out;
  for (const auto& [name, property] : schema.find("properties")->as_object())
    properties.set(name, is_required(schema, name) ? property : or_null(property));
  for (const Json& group : schema.find("include")->as_array())
    for (const auto& [name, property] : groups.find(group.as_string())->as_object())
      if (properties.find(name) == nullptr) properties.set(name, or_null(property));
  for (const auto& [key, value] : schema.as_object())
    if (key != "include") out.set(key, key == "properties" ? properties : value);
  return out;
}

Json json_content(Json schema) {
  return object_of("application/json", object_of("schema", std::move(schema)));
}

Json operation(const EndpointEntry& entry) {
  const std::string_view request = entry.request, path = entry.path;
  Json json;
  json.set("summary", entry.summary);
  if (path.ends_with(kParameter)) {
    Json parameter;
    parameter.set("name", "model");
    parameter.set("in", "path");
    parameter.set("required", true);
    parameter.set("schema", object_of("type", "string"));
    json.set("parameters", Json(Json::Array{std::move(parameter)}));
  }
  if (!request.empty()) {
    Json body = object_of("required", true);
    body.set("content", json_content(reference(request)));
    json.set("requestBody", std::move(body));
  }
  Json content = json_content(reference(entry.response));
  if (entry.streams)
    content.set("text/event-stream", object_of("schema", object_of("type", "string")));
  Json good = object_of("description", entry.summary);
  good.set("content", std::move(content));
  const bool is_anthropic = error_form(path) == ErrorForm::kAnthropic;
  Json bad = object_of("description", "what is wrong, and with which field");
  bad.set("content", json_content(reference(is_anthropic ? "MessagesError" : "Error")));
  Json responses = object_of("200", std::move(good));
  responses.set("default", std::move(bad));
  json.set("responses", std::move(responses));
  return json;
}

Json method_key(std::string_view method) { return method == "GET" ? "get" : "post"; }

}  // namespace

Json openapi_schemas() {
  const Json groups = Json::parse(kFieldGroups).value();
  Json schemas;
  for (const std::string_view text : {kRequestSchemas, kResponseSchemas}) {
    const Json parsed = Json::parse(text).value();
    for (const auto& [name, schema] : parsed.as_object())
      schemas.set(name, schema.find("include") == nullptr ? schema : with_groups(schema, groups));
  }
  return schemas;
}

Json openapi_document(std::string_view version) {
  Json paths;
  for (const EndpointEntry& entry : endpoint_table())
    paths.set(entry.path, object_of(method_key(entry.method).as_string(), operation(entry)));
  Json info = object_of("title", "Pewter");
  info.set("version", version);
  Json bearer = object_of("type", "http");
  bearer.set("scheme", "bearer");
  Json components = object_of("schemas", openapi_schemas());
  components.set("securitySchemes", object_of("key", std::move(bearer)));
  Json document = object_of("openapi", "3.1.0");
  document.set("info", std::move(info));
  document.set("paths", std::move(paths));
  document.set("components", std::move(components));
  return document;
}

}  // namespace pewter::server
