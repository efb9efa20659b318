#include "cli/bench_accept.h"

#include <algorithm>
#include <charconv>

#include "base/clock.h"
#include "base/file.h"

namespace pewter {
namespace {

constexpr int64_t kPromptsLimit = int64_t{64} << 20;

Error wrong_prompt(size_t index, std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, str_cat("prompt ", index + 1, ": ", what)};
}

// The list in the file, whichever of its three forms it has.
Result<Json::Array> list_of(const std::string& text) {
  if (const Result<Json> whole = Json::parse(text)) {
    const Json* list = whole->is_object() ? whole->find("prompts") : &*whole;
    if (list != nullptr && list->is_array()) return list->as_array();
    if (!whole->is_object() || whole->find("prompts") != nullptr)
      return Error{ErrorCode::kInvalidArgument, "want a JSON list of prompts"};
  }
  Json::Array lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<Json> json = Json::parse(line);
    if (!json) return json.error().within(str_cat("line ", lines.size() + 1));
    lines.push_back(*std::move(json));
  }
  return lines;
}

Result<std::vector<int32_t>> ids_of(const Json& prompt, size_t index, const LoadedModel& model) {
  if (const Json* ids = prompt.find("prompt_ids")) {
    std::vector<int32_t> out;
    if (!ids->is_array()) return wrong_prompt(index, "prompt_ids is no list");
    for (const Json& id : ids->as_array()) {
      if (!id.is_integer()) return wrong_prompt(index, "prompt_ids holds what is no integer");
      out.push_back(static_cast<int32_t>(id.as_integer()));
    }
    return out;
  }
  Json messages;
  if (const Json* given = prompt.find("messages")) {
    if (!given->is_array()) return wrong_prompt(index, "messages is no list");
    messages = *given;
  } else if (const Json* text = prompt.find("prompt"); text != nullptr && text->is_string()) {
    Json message;
    message.set("role", "user");
    message.set("content", *text);
    messages = Json::Array{message};
  } else {
    return wrong_prompt(index, "has neither prompt_ids nor messages nor a text prompt");
  }
  const Result<RenderedPrompt> rendered = model.render({.messages = messages, .thinking = false});
  if (!rendered) return rendered.error().within(str_cat("prompt ", index + 1));
  return model.tokenizer.encode_prompt(rendered->text, rendered->foreign);
}

class Runner {
 public:
  Runner(const AcceptOptions& options, LoadedModel& loaded, std::vector<AcceptPrompt> prompts)
      : options_(options), loaded_(loaded), prompts_(std::move(prompts)) {}

  Result<AcceptResult> run(const BenchHooks& hooks) {
    AcceptResult result{.options = options_, .device = loaded_.backend.name};
    for (const AcceptPrompt& prompt : prompts_)
      if (std::ranges::count(result.families, prompt.family) == 0)
        result.families.push_back(prompt.family);
    result.cells.assign(result.families.size(), std::vector<AcceptCell>(options_.methods.size()));
    for (int64_t repeat = 0; repeat < options_.repeats; ++repeat)
      for (size_t m = 0; m < options_.methods.size(); ++m) {
        if (hooks.progress)
          hooks.progress(str_cat("repeat ", repeat + 1, " of ", options_.repeats, ", ",
                                 options_.methods[m].name));
        TRY(start(options_.methods[m].draft));
        for (size_t f = 0; f < result.families.size(); ++f) {
          TRY_ASSIGN(const AcceptCell cell, answer(result.families[f]));
          AcceptCell& best = result.cells[f][m];
          if (best.seconds == 0 || cell.seconds < best.seconds) best = cell;
        }
      }
    std::vector<AcceptCell> all(options_.methods.size());
    for (const std::vector<AcceptCell>& row : result.cells)
      for (size_t m = 0; m < row.size(); ++m) all[m] += row[m];
    result.families.emplace_back("all");
    result.cells.push_back(std::move(all));
    return result;
  }

 private:
  // An engine of its own for every method: the one before ends first, for they share scratch.
  Status start(const DraftOptions& draft) {
    loaded_.engine.reset();
    EngineOptions engine = loaded_.engine_options;
    engine.draft = draft;
    engine.runner.decode_rows = 1;
    engine.runner.max_sequences = options_.sequences;
    const bool dflash = draft.method == DraftMethod::kDflash ||
                        (draft.method == DraftMethod::kAuto && engine.dflash != nullptr);
    if (!dflash) engine.dflash = nullptr;
    loaded_.model.taps = dflash ? engine.dflash->config.taps : std::vector<int64_t>();
    TRY_ASSIGN(loaded_.engine,
               Engine::make(loaded_.model, *loaded_.backend.device, *loaded_.backend.ops, engine));
    return {};
  }

  Request request_of(const AcceptPrompt& prompt) const {
    Request request{
        .prompt = prompt.ids, .max_tokens = options_.max_tokens, .stop_ids = loaded_.stop_ids};
    request.sampling.temperature = options_.temperature;
    request.sampling.seed = 1;
    return request;
  }

  // All prompts of a family, as many at once as may be.
  Result<AcceptCell> answer(const std::string& family) {
    AcceptCell cell;
    double alone = 0;
    std::vector<TokenStream> streams;
    const Stopwatch watch;
    const auto finish_first = [&]() -> Status {
      StreamNews news;
      while (!news.end) streams.front().wait(news);
      const Completion& completion = *news.end;
      if (completion.reason == FinishReason::kError) return completion.error;
      ++cell.prompts;
      cell.tokens += completion.completion_tokens - 1;
      cell.drafts += completion.drafts;
      alone += completion.decode_seconds;
      streams.erase(streams.begin());
      return {};
    };
    for (const AcceptPrompt& prompt : prompts_) {
      if (prompt.family != family) continue;
      TRY_ASSIGN(TokenStream stream, loaded_.engine->submit(request_of(prompt)));
      streams.push_back(std::move(stream));
      if (std::ssize(streams) >= options_.sequences) TRY(finish_first());
    }
    while (!streams.empty()) TRY(finish_first());
    cell.seconds = options_.sequences == 1 ? alone : watch.seconds();
    return cell;
  }

  const AcceptOptions& options_;
  LoadedModel& loaded_;
  std::vector<AcceptPrompt> prompts_;
};

}  // namespace

double AcceptCell::tokens_per_step() const {
  return steps() > 0 ? static_cast<double>(tokens) / static_cast<double>(steps()) : 0;
}
double AcceptCell::tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}
AcceptCell& AcceptCell::operator+=(const AcceptCell& more) {
  prompts += more.prompts;
  tokens += more.tokens;
  drafts += more.drafts;
  seconds += more.seconds;
  return *this;
}

Result<std::vector<AcceptMethod>> parse_accept_methods(std::string_view list) {
  std::vector<AcceptMethod> methods;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view text = list.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = std::min(text.find(':'), text.size());
    const std::string_view name = text.substr(0, colon);
    const Result<DraftMethod> method = draft_method(name == "plain" ? "none" : name);
    if (!method) return method.error().within("--methods");
    AcceptMethod made{.name = std::string(text), .draft = {.method = *method}};
    made.draft.depth = DraftLength::kByCost;
    made.draft.tokens = default_draft_tokens(*method, made.draft.depth);
    if (colon < text.size()) {
      const Result<SpeculativeDepth> depth =
          parse_speculative_depth(str_cat("fixed", text.substr(colon)));
      if (!depth || *method == DraftMethod::kNone)
        return Error{ErrorCode::kInvalidArgument,
                     str_cat("--methods: ", text, ": want ", name, " or ", name,
                             ":k with k from 1 to ", kMaxDrafts)};
      made.draft.depth = DraftLength::kFixed;
      made.draft.tokens = depth->tokens.value_or(0);
    }
    methods.push_back(std::move(made));
  }
  return methods;
}

Result<std::vector<AcceptPrompt>> read_accept_prompts(const std::string& text,
                                                      const LoadedModel& model) {
  TRY_ASSIGN(const Json::Array list, list_of(text));
  std::vector<AcceptPrompt> prompts;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) return wrong_prompt(i, "is no object");
    const Json* family = list[i].find("family");
    if (family != nullptr && !family->is_string()) return wrong_prompt(i, "family is no text");
    TRY_ASSIGN(std::vector<int32_t> ids, ids_of(list[i], i, model));
    prompts.push_back(
        {.family = family == nullptr ? "prompts" : family->as_string(), .ids = std::move(ids)});
  }
  if (prompts.empty()) return Error{ErrorCode::kInvalidArgument, "no prompts"};
  return prompts;
}

Result<AcceptResult> run_accept_bench(const AcceptOptions& options, const BenchHooks& hooks) {
  TRY_ASSIGN(const std::string text, read_file(options.prompts, kPromptsLimit));
  if (hooks.progress) hooks.progress("loading");
  TRY_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::load(options.model, {}));
  Result<std::vector<AcceptPrompt>> prompts = read_accept_prompts(text, *loaded);
  if (!prompts) return prompts.error().within(options.prompts);
  return Runner(options, *loaded, *std::move(prompts)).run(hooks);
}

}  // namespace pewter
