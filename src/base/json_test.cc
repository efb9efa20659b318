#include "base/json.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace pewter {
namespace {

TEST(Json, KeepsKeyOrderAndBigIntegers) {
  const Json json = Json::parse(R"({"z":1,"a":[true,null,12345678901234567890123,-5]})").value();
  EXPECT_EQ(json.dump(), R"({"z":1,"a":[true,null,12345678901234567890123,-5]})");
  EXPECT_EQ(json.dump({.spaced = true}),
            R"({"z": 1, "a": [true, null, 12345678901234567890123, -5]})");
  EXPECT_EQ(json.dump({.indent = 1}),
            "{\n \"z\": 1,\n \"a\": [\n  true,\n  null,\n  12345678901234567890123,\n  -5\n ]\n}");
  EXPECT_EQ(json.find("z")->as_integer(), 1);
  EXPECT_EQ(json.find("missing"), nullptr);
}

TEST(Json, FloatsPrintAsPythonRepr) {
  EXPECT_EQ(Json::parse("[2.0,1e-7,100000.0,1e16,1e15,0.0001,1.5e300,-0.0]").value().dump(),
            "[2.0,1e-07,100000.0,1e+16,1000000000000000.0,0.0001,1.5e+300,-0.0]");
}

TEST(Json, RejectsBadTextWithItsPlace) {
  EXPECT_NE(Json::parse("{\"a\": }").error().message.find("line 1, column 7"), std::string::npos);
  EXPECT_FALSE(Json::parse("").has_value());
  EXPECT_FALSE(Json::parse("[1] x").has_value());
  EXPECT_FALSE(Json::parse("\"\xff\"").has_value());
  EXPECT_FALSE(Json::parse("[NaN]").has_value());
  // The message quotes what it read last, which may end within a character.
  EXPECT_TRUE(is_valid_utf8(Json::parse("{\xe2\x80\x9c"
                                        "a}")
                                .error()
                                .message));
  EXPECT_NE(Json::parse(std::string(300, '[')).error().message.find("deeper"), std::string::npos);
}

TEST(Json, CountsKeysAndValues) {
  EXPECT_TRUE(Json::parse(R"({"a":1,"b":{"c":1,"d":2}})", {.max_keys = 2}));
  EXPECT_NE(Json::parse(R"([{"a":1,"b":1,"c":1}])", {.max_keys = 2})
                .error()
                .message.find("an object has more than 2 keys"),
            std::string::npos);
  EXPECT_TRUE(Json::parse("[1,2]", {.max_values = 3}));
  EXPECT_NE(Json::parse("[1,2,3]", {.max_values = 3}).error().message.find("more than 3 values"),
            std::string::npos);
}

TEST(Json, DuplicateKeysLastWinsOrRefused) {
  EXPECT_EQ(Json::parse(R"({"a":1,"b":2,"a":3})").value().dump(), R"({"a":3,"b":2})");
  const auto refused = Json::parse(R"({"a":1,"a":3})", {.reject_duplicate_keys = true});
  EXPECT_NE(refused.error().message.find("duplicate key \"a\""), std::string::npos);
}

TEST(Json, EscapesStrings) {
  std::string out;
  append_json_string(out, "a\"\\\n\x01é");
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001é\"");
}

}  // namespace
}  // namespace pewter
