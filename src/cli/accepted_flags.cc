#include "cli/accepted_flags.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/str_cat.h"

namespace pewter {
namespace {

struct AcceptedFlag {
  const char* name;
  const char* value;    // "": it has none
  const char* allowed;  // values that are true here, with blanks between; "": all
  const char* note;
};

constexpr const char* kAlways = "it is always so";
constexpr const char* kOwnChoice = "this engine has its own way";
constexpr const char* kNothing = "there is nothing of the kind here";

constexpr auto kAccepted = std::to_array<AcceptedFlag>({
    {"--enable-auto-tool-choice", "", "", kAlways},
    {"--tool-call-parser", "NAME", "auto qwen3_xml qwen3_coder hermes qwen xml",
     "one parser reads both dialects"},
    {"--enable-chunked-prefill", "", "", kAlways},
    {"--no-enable-chunked-prefill", "", "", "prompts are always read in chunks"},
    {"--enable-prefix-caching", "", "", "there is no prefix cache yet"},
    {"--no-enable-prefix-caching", "", "", "there is no prefix cache yet"},
    {"--mamba-cache-mode", "NAME", "", "there is no prefix cache yet"},
    {"--mamba-ssm-cache-dtype", "NAME", "auto float32", "recurrent state is float32"},
    {"--kv-cache-dtype", "NAME", "auto bfloat16", "keys and values are bfloat16"},
    {"--dtype", "NAME", "auto bfloat16", "activations are bfloat16"},
    {"--quantization", "NAME", "", "the checkpoint says how it is quantised"},
    {"--load-format", "NAME", "", kOwnChoice},
    {"--tensor-parallel-size", "N", "1", "one device is what is used"},
    {"--pipeline-parallel-size", "N", "1", "one device is what is used"},
    {"--data-parallel-size", "N", "1", "one device is what is used"},
    {"--enable-expert-parallel", "", "", "one device is what is used"},
    {"--attention-backend", "NAME", "", kOwnChoice},
    {"--moe-backend", "NAME", "", kOwnChoice},
    {"--mm-encoder-attn-backend", "NAME", "", kOwnChoice},
    {"--compilation-config", "JSON", "", kOwnChoice},
    {"--enforce-eager", "", "", kOwnChoice},
    {"--async-scheduling", "", "", kOwnChoice},
    {"--block-size", "N", "", "pages have 64 tokens"},
    {"--swap-space", "N", "", "nothing is swapped"},
    {"--cpu-offload-gb", "N", "0", "nothing is kept elsewhere"},
    {"--trust-remote-code", "", "", "no code of a model is ever run"},
    {"--language-model-only", "", "", kAlways},
    {"--limit-mm-per-prompt", "JSON", "", "there are no images yet"},
    {"--skip-mm-profiling", "", "", "there are no images yet"},
    {"--chat-template-content-format", "NAME", "auto string openai",
     "templates get the parts of a text as one"},
    {"--enable-reasoning", "", "", kAlways},
    {"--root-path", "PATH", "", "paths are those that a proxy passes on"},
    {"--stream-interval", "N", "1", "every token has its event"},
    {"--max-logprobs", "N", "", "at most 20 are told"},
    {"--return-tokens-as-token-ids", "", "", kNothing},
    {"--seed", "N", "", "requests have seeds of their own"},
    {"--disable-log-stats", "", "", kNothing},
    {"--disable-log-requests", "", "", "they are not logged unless asked for"},
    {"--no-enable-log-requests", "", "", "they are not logged unless asked for"},
    {"--uvicorn-log-level", "NAME", "", kNothing},
    {"--disable-uvicorn-access-log", "", "", kNothing},
    {"--disable-frontend-multiprocessing", "", "", kNothing},
    {"--jinja", "", "", kAlways},
    {"--metrics", "", "", kNothing},
    {"--slots", "", "", kNothing},
    {"--no-webui", "", "", kNothing},
    {"--n-gpu-layers", "N", "", "all layers are on the device"},
    {"--flash-attn", "NAME", "", kOwnChoice},
    {"--no-mmap", "", "", kOwnChoice},
    {"--mlock", "", "", kOwnChoice},
    {"--cont-batching", "", "", kAlways},
});

const AcceptedFlag& find(const std::string& name) {
  const auto* const at = std::ranges::find(kAccepted, name, &AcceptedFlag::name);
  CHECK(at != kAccepted.end(), name, " is no accepted flag");
  return *at;
}

bool is_allowed(std::string_view allowed, const std::string& value) {
  if (allowed.empty()) return true;
  return str_cat(" ", allowed, " ").find(str_cat(" ", value, " ")) != std::string::npos;
}

}  // namespace

void declare_accepted_flags(Flags& flags, std::vector<GivenFlag>& given) {
  for (const AcceptedFlag& flag : kAccepted)
    flags.accepted(flag.name, flag.value, [&given, &flag](const std::string& value) {
      given.push_back({.name = flag.name, .value = value});
    });
}

Status check_accepted_flags(const std::vector<GivenFlag>& given) {
  for (const auto& [name, value] : given)
    if (const AcceptedFlag& flag = find(name); !is_allowed(flag.allowed, value))
      return Error{ErrorCode::kInvalidArgument,
                   str_cat(name, ": this server cannot do \"", value, "\": ", flag.note,
                           " (accepted: ", flag.allowed, ")")};
  return {};
}

std::vector<std::string> accepted_notes(const std::vector<GivenFlag>& given) {
  std::vector<std::string> notes;
  notes.reserve(given.size());
  for (const auto& [name, value] : given)
    notes.push_back(
        str_cat(name, value.empty() ? "" : " ", value, " changes nothing: ", find(name).note));
  return notes;
}

}  // namespace pewter
