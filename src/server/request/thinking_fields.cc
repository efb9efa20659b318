#include "server/request/thinking_fields.h"

#include <array>

namespace pewter::server {
namespace {

// Names a template's variables have already.
constexpr std::array<std::string_view, 3> kReserved = {"messages", "tools",
                                                       "add_generation_prompt"};

Status read_kwargs(Fields& fields, Json& into) {
  const Json* kwargs = fields.take("chat_template_kwargs");
  if (kwargs == nullptr) return {};
  TRY(Fields::of(*kwargs, "chat_template_kwargs"));
  for (const std::string_view name : kReserved)
    if (kwargs->find(name) != nullptr)
      return bad_request(str_cat("chat_template_kwargs.", name,
                                 ": this name is taken; the request has a field for it"));
  into = *kwargs;
  return {};
}

// Said first counts.
void set_if_open(Json& kwargs, std::string_view name, Json value) {
  if (kwargs.find(name) == nullptr) kwargs.set(name, std::move(value));
}

void take_effort(const std::string& effort, Json& kwargs, Thinking& into) {
  if (into.effort.empty()) into.effort = effort;
  if (effort == "none") return set_if_open(kwargs, "enable_thinking", false);
  set_if_open(kwargs, "reasoning_effort", effort);
}

constexpr Fields::IntegerRange kBudgets{.least = -1, .most = INT32_MAX};

// Anthropic's {"type": "enabled", "budget_tokens": 1024}
Status read_thinking_object(Fields& fields, Json& kwargs, Thinking& into) {
  const Json* thinking = fields.take("thinking");
  if (thinking == nullptr) return {};
  TRY_ASSIGN(Fields inner, Fields::of(*thinking, "thinking"));
  std::string type = "enabled";
  TRY(inner.read("type", type));
  TRY(inner.read("budget_tokens", into.budget, kBudgets));
  if (type == "disabled") {
    set_if_open(kwargs, "enable_thinking", false);
  } else if (type == "enabled" || type == "adaptive" || type == "auto") {
    set_if_open(kwargs, "enable_thinking", true);
  } else {
    return bad_request(str_cat("thinking.type: ", safe_quote(type),
                               " is none of \"enabled\", \"disabled\", \"adaptive\""));
  }
  return {};
}

// {"effort": "low"}, {"max_tokens": 1024}, {"enabled": false}
Status read_reasoning_object(Fields& fields, Json& kwargs, Thinking& into) {
  const Json* reasoning = fields.take("reasoning");
  if (reasoning == nullptr) return {};
  TRY_ASSIGN(Fields inner, Fields::of(*reasoning, "reasoning"));
  std::optional<std::string> effort;
  std::optional<bool> enabled;
  TRY(inner.read("effort", effort));
  TRY(inner.read("enabled", enabled));
  TRY(inner.read("max_tokens", into.budget, kBudgets));
  if (enabled) set_if_open(kwargs, "enable_thinking", *enabled);
  if (effort) take_effort(*effort, kwargs, into);
  return {};
}

}  // namespace

Status read_thinking(Fields& fields, Json& template_kwargs, Thinking& into) {
  TRY(read_kwargs(fields, template_kwargs));
  std::optional<bool> enable;
  TRY(fields.read("enable_thinking", enable));
  if (enable) set_if_open(template_kwargs, "enable_thinking", *enable);
  TRY(read_thinking_object(fields, template_kwargs, into));
  TRY(read_reasoning_object(fields, template_kwargs, into));
  std::optional<std::string> effort;
  TRY(fields.read("reasoning_effort", effort));
  if (effort) take_effort(*effort, template_kwargs, into);
  for (const char* name :
       {"thinking_budget_tokens", "reasoning_budget", "thinking_budget", "thinking_token_budget"})
    TRY(fields.read(name, into.budget, kBudgets));
  return {};
}

}  // namespace pewter::server
