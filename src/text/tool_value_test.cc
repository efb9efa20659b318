// Raw parameter texts and the values that schemas make of them.
#include "text/tool_value.h"

#include <gtest/gtest.h>

namespace pewter {
namespace {

// The value of text under a schema, as JSON text.
std::string value(const std::string& schema, const std::string& text) {
  const Json parsed = Json::parse(schema).value();
  return tool_value(text, schema_types(parsed, parsed)).dump();
}

TEST(ToolValue, IsTextWhereTextIsWanted) {
  for (const char* schema : {R"({"type":"string"})", "{}", R"({"enum":["a","b"]})"})
    for (const char* text : {"null", "007", "true", " x ", R"({"a":1})"})
      EXPECT_EQ(value(schema, text), Json(text).dump()) << schema << text;
}

TEST(ToolValue, TakesTheFirstTypeThatFits) {
  for (const auto& [schema, text, want] : std::vector<std::array<const char*, 3>>{
           {R"({"type":"integer"})", "42", "42"},
           {R"({"type":"integer"})", " -7\n", "-7"},
           {R"({"type":"integer"})", "007", "7"},
           {R"({"type":"integer"})", "-0", "0"},
           {R"({"type":"integer"})", "4.0", "4"},
           {R"({"type":"integer"})", "4.5", "\"4.5\""},
           {R"({"type":"integer"})", "soon", "\"soon\""},
           {R"({"type":"integer"})", "123456789012345678901234", "123456789012345678901234"},
           {R"({"type":"integer"})", "", "\"\""},
           {R"({"type":"number"})", "99.50", "99.5"},
           {R"({"type":"number"})", "3.0", "3"},
           {R"({"type":"number"})", "1e3", "1000"},
           {R"({"type":"number"})", "1e999", "\"1e999\""},
           {R"({"type":"number"})", "nan", "\"nan\""},
           {R"({"type":"number"})", "0x10", "\"0x10\""},
           {R"({"type":"boolean"})", "True", "true"},
           {R"({"type":"boolean"})", "0", "false"},
           {R"({"type":"boolean"})", "yes", "\"yes\""},
           {R"({"type":"integer"})", "None", "null"},
           {R"({"type":["string","null"]})", "NULL", "null"},
           {R"({"type":["string","null"]})", "5", "\"5\""},
           {R"({"type":["string","integer"]})", "5", "5"},
           {R"({"type":["integer","boolean"]})", "1", "1"},
           {R"({"type":["integer","boolean"]})", "TRUE", "true"},
           {R"({"enum":[1,2]})", "2", "2"},
           {R"({"enum":[1.5]})", "1.5", "1.5"},
           {R"({"const":true})", "true", "true"},
           {R"({"type":"array"})", R"(["a", 1])", R"(["a",1])"},
           {R"({"type":"array"})", "('a', 1,)", R"(["a",1])"},
           {R"({"type":"array"})", R"({"a":1})", R"("{\"a\":1}")"},
           {R"({"type":"object"})", R"({"b":[], "a":2.0})", R"({"b":[],"a":2.0})"},
           {R"({"type":"object"})", "{'a': True, 'b': None}", R"({"a":true,"b":null})"},
           {R"({"type":"object"})", "{a: 1}", R"("{a: 1}")"},
           {R"({"type":"object"})", "{} x", R"("{} x")"},
           {R"({"properties":{}})", "{}", "{}"},
           {R"({"items":{}})", "[]", "[]"},
           {R"({"anyOf":[{"type":"string"},{"type":"null"}]})", "none", "null"},
           {R"({"oneOf":[{"type":"integer"},{"allOf":[{"type":"boolean"}]}]})", "true", "true"},
           {R"({"anyOf":[{"type":"object"},{"type":"string"}]})", "{x", "\"{x\""},
           {R"({"$ref":"#/$defs/N","$defs":{"N":{"type":"integer"}}})", "5", "5"},
           {R"({"$ref":"#/x~1y/0","x/y":[{"type":"integer"}]})", "5", "5"},
           {R"({"$ref":"#"})", "5", "\"5\""},
           {R"({"$ref":"#/none"})", "5", "\"5\""}})
    EXPECT_EQ(value(schema, text), want) << schema << " " << text;
}

TEST(PythonLiteral, ReadsWhatPythonPrints) {
  const auto read = [](const char* text) {
    const std::optional<Json> value = parse_python_literal(text);
    return value ? value->dump() : "none";
  };
  EXPECT_EQ(read(R"({'a': [1, -2.5, 'it\'s', "q\"\n"], 'b': (None, False)})"),
            R"({"a":[1,-2.5,"it's","q\"\n"],"b":[null,false]})");
  EXPECT_EQ(read(R"('\x41\u00e9 \d')"), R"("Aé \\d")");
  EXPECT_EQ(read(" [ ] "), "[]");
  for (const char* broken : {"", "[", "[1", "[1 2]", "{'a'}", "{'a' 1}", "{1: 2}", "'a", "'a\n'",
                             "'\\", "foo", "[1]]", "{'a': }", "'\\ud800'"})
    EXPECT_EQ(read(broken), "none") << broken;
  EXPECT_EQ(read((std::string(100, '[') + std::string(100, ']')).c_str()), "none");
}

TEST(ToolSchemas, KnowWhatIsDeclared) {
  const ToolSchemas tools(Json::parse(R"([
      {"type":"function","function":{"name":"f","parameters":{"type":"object",
       "properties":{"a":{"$ref":"#/$defs/A"},"b":{}},"$defs":{"A":{"type":"array"}}}}},
      {"name":"g","input_schema":{"properties":{"c":{"type":"integer"}}}},
      {"function":{"parameters":{}}}, 5, {"name":"h","parameters":{"properties":5}}])")
                              .value());
  EXPECT_TRUE(tools.declares("f") && tools.declares("g") && tools.declares("h"));
  EXPECT_FALSE(tools.declares("") || tools.declares("i"));
  EXPECT_TRUE(tools.declares("f", "b"));
  EXPECT_FALSE(tools.declares("f", "c") || tools.declares("i", "a"));
  EXPECT_EQ(tools.types("f", "a"), TypeSet(TypeSet::kArray));
  EXPECT_EQ(tools.types("g", "c"), TypeSet(TypeSet::kInteger));
  EXPECT_TRUE(tools.types("f", "b").empty() && tools.types("x", "y").empty());
  EXPECT_FALSE(ToolSchemas(Json()).declares("f"));
}

}  // namespace
}  // namespace pewter
