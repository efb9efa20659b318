// Hostile templates and inputs end in an error, soon and within their memory.
#include <gtest/gtest.h>

#include <chrono>

#include "text/jinja/template.h"

namespace pewter::jinja {
namespace {

// Smaller than the defaults, to keep the tests short.
constexpr RenderLimits kLimits = {.max_steps = 3'000'000, .max_memory_bytes = 256 << 20};

// The error, or kInternal with the output when there was none.
Error render_error(std::string_view source, const RenderLimits& limits = kLimits,
                   const Json& input = Json()) {
  const auto parsed = Template::parse(source);
  if (!parsed) return parsed.error();
  const auto begin = std::chrono::steady_clock::now();
  const auto text = parsed->render({{"x", &input, Origin::kClient}}, std::nullopt, limits);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 60.0) << source;
  if (text) return Error{ErrorCode::kInternal, "printed " + text->bytes.substr(0, 200)};
  return text.error();
}

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Limits, OversizedResults) {
  for (const std::string_view source : {
           "{{ 'a' * 10 ** 9 }}",
           "{{ 'a' * 9223372036854775807 }}",
           "{{ [1] * 10 ** 12 }}",
           "{{ [1, 2, 3] * 9223372036854775807 }}",
           "{{ range(10 ** 12) | list }}",
           "{{ range(100001) }}",
           "{{ 'a'.ljust(10 ** 12) }}",
           "{{ 'a'.center(9223372036854775807) }}",
           "{{ '5'.zfill(10 ** 12) }}",
           "{{ 'a' | center(10 ** 12) }}",
           "{{ 'a' | indent(10 ** 12) }}",
           "{{ 'a\nb' | indent(9223372036854775807) }}",
           "{{ [1] | tojson(indent=10 ** 12) }}",
           "{{ '%999999999s' % 1 }}",
           "{{ '%*d' % (10 ** 12, 1) }}",
           "{{ [1] | batch(10 ** 12, 0) | list }}",
           "{{ [1] | slice(10 ** 12) | list }}",
           "{{ ('a' * 10 ** 6).replace('a', 'b' * 10 ** 6) }}",
           "{{ ('a' * 10 ** 6) | replace('', 'b' * 10 ** 6) }}",
           "{{ (['a'] * 10 ** 6) | join('b' * 10 ** 6) }}",
           "{{ strftime_now('%99999999d') }}",
           "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
           "{% endfor %}",
           "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}"
           "{% endfor %}",
           "{% set n = namespace(l=[1, 2]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}"
           "{% endfor %}",
           "{% for i in range(1000) %}{{ 'a' * 10 ** 6 }}{% endfor %}",
       }) {
    const Error error = render_error(source);
    EXPECT_EQ(error.code, ErrorCode::kResourceExhausted) << source << "\n  " << error.message;
  }
}

TEST(Limits, LongWork) {
  for (const std::string_view source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           // Lists that share their parts: small in memory, 2^60 items when walked.
           "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
           "{% endfor %}{{ n.l }}",
           "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
           "{% endfor %}{{ n.l | tojson }}",
           "{% set n = namespace(l=[1], m=[1]) %}{% for i in range(60) %}"
           "{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}{{ n.l == n.m }}",
           "{% set n = namespace(l=[1], m=[2]) %}{% for i in range(60) %}"
           "{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}"
           "{{ [n.l, n.l] | sort == n.m < n.l }}{{ n.l | string }}",
           "{% set s = 'a' * 10 ** 7 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}",
           "{% set s = 'a' * 10 ** 7 %}{% for i in range(100000) %}{{ s | length }}{% endfor %}",
           "{{ range(100000) | unique | list }}",
           "{% set s = 'a' * 10 ** 6 %}{{ s.rfind('b' + s[:500000]) }}",
           "{% set s = 'a' * 10 ** 6 %}{{ s.rsplit('b' + s[:500000]) }}",
           "{% macro m(k) %}{% for i in range(10) %}{{ m(k + 1) }}{% endfor %}{% endmacro %}"
           "{{ m(0) }}",
       }) {
    const Error error = render_error(source);
    EXPECT_EQ(error.code, ErrorCode::kResourceExhausted) << source << "\n  " << error.message;
  }
  // A key of 2^60 parts: refused without a walk.
  EXPECT_NE(render_error("{% set n = namespace(l=(1,)) %}{% for i in range(60) %}"
                         "{% set n.l = (n.l, n.l) %}{% endfor %}{{ {n.l: 1} }}")
                .message.find("unhashable"),
            std::string::npos);
}

TEST(Limits, Depth) {
  for (const std::string& source : {
           std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
           std::string(
               "{% macro m() %}{% call m() %}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}"),
           std::string("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
           std::string("{% set n = namespace(l=[]) %}{% for i in range(99999) %}"
                       "{% set n.l = [n.l] %}{% endfor %}"),
           std::string("{% set n = namespace(l={}) %}{% for i in range(99999) %}"
                       "{% set n.l = {'a': n.l} %}{% endfor %}"),
       }) {
    const Error error = render_error(source);
    EXPECT_EQ(error.code, ErrorCode::kResourceExhausted) << source << "\n  " << error.message;
  }
  Json nested = Json::Array{};
  for (int i = 0; i < 2000; ++i) nested = Json(Json::Array{std::move(nested)});
  EXPECT_EQ(render_error("{{ x }}", kLimits, nested).code, ErrorCode::kResourceExhausted);
}

TEST(Limits, NestingInTheSource) {
  for (const std::string& source : {
           "{{ " + repeat("(", 100'000) + "1" + repeat(")", 100'000) + " }}",
           "{{ " + repeat("[", 100'000) + repeat("]", 100'000) + " }}",
           "{{ " + repeat("{1:", 100'000) + "1" + repeat("}", 100'000) + " }}",
           "{{ " + repeat("-", 100'000) + "1 }}",
           "{{ " + repeat("not ", 100'000) + "1 }}",
           "{{ 1" + repeat(" + 1", 100'000) + " }}",
           "{{ 1" + repeat(" ** 1", 100'000) + " }}",
           "{{ 1" + repeat(" or 1", 100'000) + " }}",
           "{{ x" + repeat(".x", 100'000) + " }}",
           "{{ x" + repeat("[0]", 100'000) + " }}",
           "{{ x" + repeat("(", 100'000) + repeat(")", 100'000) + " }}",
           "{{ x" + repeat("()", 100'000) + " }}",
           "{{ x" + repeat("|trim", 100'000) + " }}",
           "{{ " + repeat("1 if 1 else ", 100'000) + "1 }}",
           "{{ 1" + repeat(" if 1", 100'000) + " }}",
           repeat("{% if 1 %}", 100'000) + repeat("{% endif %}", 100'000),
           repeat("{% for x in [] %}", 100'000) + repeat("{% endfor %}", 100'000),
           "{% for " + repeat("(", 100'000) + "x" + repeat(")", 100'000) + " in y %}{% endfor %}",
           "{% set x" + repeat("|trim", 100'000) + " %}{% endset %}",
       }) {
    const auto parsed = Template::parse(source);
    ASSERT_FALSE(parsed.has_value()) << source.substr(0, 40);
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorruptData);
    EXPECT_NE(parsed.error().message.find("nested too deeply"), std::string::npos)
        << source.substr(0, 40) << " " << parsed.error().message;
  }
  // Lengths that are no nesting are fine.
  EXPECT_TRUE(Template::parse("{{ 1" + repeat(" ~ 1", 10'000) + " }}").has_value());
  EXPECT_TRUE(Template::parse("{{ [1" + repeat(", 1", 10'000) + "] }}").has_value());
  EXPECT_TRUE(
      Template::parse("{% if x %}" + repeat("{% elif x %}", 10'000) + "{% endif %}").has_value());
}

TEST(Limits, AreWhatTheCallerSays) {
  EXPECT_EQ(render_error("{{ 'a' * 11 }}", {.max_output_bytes = 10}).code,
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(render_error("{{ 'a' * 10 }}", {.max_output_bytes = 10}).message, "printed aaaaaaaaaa");
  EXPECT_EQ(
      render_error("a\n{% for i in range(9) %}{{ i }}{% endfor %}", {.max_steps = 20}).message,
      "line 2: takes more than 20 steps");
  EXPECT_EQ(render_error("{{ [[1]] }}", {.max_value_depth = 1}).code,
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(render_error("{{ x }}", {.max_memory_bytes = 100}, Json(std::string(200, 'a'))).code,
            ErrorCode::kResourceExhausted);
}

// Values that change are only namespaces, and they are pointed to: a circle of them does no harm.
TEST(Limits, CirclesOfNamespaces) {
  EXPECT_EQ(render_error("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                         "{% set a.l = [a] %}{{ a.b.a.b.a == a }}{{ a }}")
                .message,
            "printed True<Namespace>");
  EXPECT_EQ(render_error("{% set a = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}"
                         "{% endmacro %}{% if i == 1 %}{% set a.m = m %}{% endif %}{% endfor %}"
                         "{% set a.loop = 0 %}{{ a.m() }}")
                .message,
            "printed 1");
  EXPECT_EQ(render_error("{% set a = namespace() %}{% for i in [1] recursive %}{% set a.l = loop %}"
                         "{% endfor %}{{ a.l.length }}{{ a.l([1]) }}")
                .code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace pewter::jinja
