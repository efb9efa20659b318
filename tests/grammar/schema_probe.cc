// For random_schemas_test.py, which holds the schema compiler against a validator: one request a
// line on standard input, one answer a line on standard output.
//   {"schema": …, "texts": ["{}", …], "samples": 3, "seed": 1}
//   {"error": "…"} or {"admitted": [true, …], "samples": ["{…}", …]}
#include <cstdio>
#include <iostream>

#include "grammar/grammar_compiler.h"
#include "grammar/random_text.h"
#include "grammar/reader.h"

using namespace pewter;

namespace {

Json answer(const Json& request, grammar::GrammarCompiler& compiler) {
  Json out;
  grammar::AnswerRules rules{.kind = grammar::AnswerRules::Kind::kJsonSchema,
                             .json = *request.find("schema")};
  const auto compiled = compiler.compile(rules, /*in_reasoning=*/false);
  if (!compiled) {
    out.set("error", compiled.error().message);
    return out;
  }
  Json::Array admitted, samples;
  for (const Json& text : request.find("texts")->as_array())
    admitted.emplace_back(grammar::matches((*compiled)->automaton(), text.as_string()));
  Rng rng(static_cast<uint64_t>(request.find("seed")->as_integer()));
  for (int64_t i = 0; i < request.find("samples")->as_integer(); ++i)
    if (const auto text = test::random_text(*compiled, rng)) samples.emplace_back(*text);
  out.set("admitted", std::move(admitted));
  out.set("samples", std::move(samples));
  return out;
}

}  // namespace

int main() {
  grammar::GrammarCompiler compiler([] { return test::small_vocabulary(); });
  for (std::string line; std::getline(std::cin, line);)
    std::printf("%s\n", answer(Json::parse(line).value(), compiler).dump().c_str());
  return 0;
}
