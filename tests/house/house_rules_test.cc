// Every rule is seen to fail on a file made up for it, and to accept the nearest file that is
// right.
#include "house/house_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pewter::house {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Complaints includes(const std::string& path, const std::string& included) {
  return check_includes({path, "#pragma once\n#include \"" + included + "\"\n"});
}

TEST(HouseIncludes, ArrowsForwardAreFine) {
  EXPECT_THAT(includes("src/tensor/a.h", "base/result.h"), IsEmpty());
  EXPECT_THAT(includes("src/checkpoint/a.h", "tensor/a.h"), IsEmpty());
  EXPECT_THAT(includes("src/model/qwen35/a.cc", "backend/ops.h"), IsEmpty());
  EXPECT_THAT(includes("src/model/qwen35/a.cc", "model/a.h"), IsEmpty());
  EXPECT_THAT(includes("src/engine/a.h", "model/a.h"), IsEmpty());
  EXPECT_THAT(includes("src/server/a.h", "text/a.h"), IsEmpty());
  EXPECT_THAT(includes("src/cli/a.cc", "server/a.h"), IsEmpty());
}

TEST(HouseIncludes, ArrowsBackwardsAreNamedWithTheirLine) {
  EXPECT_THAT(includes("src/base/a.h", "tensor/a.h"),
              ElementsAre("src/base/a.h:2: base may not include tensor (\"tensor/a.h\")"));
  EXPECT_THAT(includes("src/tensor/a.h", "backend/ops.h"), ElementsAre(HasSubstr("backend")));
  EXPECT_THAT(includes("src/backend/a.h", "model/a.h"), ElementsAre(HasSubstr("model")));
  EXPECT_THAT(includes("src/model/a.h", "engine/a.h"), ElementsAre(HasSubstr("engine")));
  EXPECT_THAT(includes("src/engine/a.h", "server/a.h"), ElementsAre(HasSubstr("server")));
  EXPECT_THAT(includes("src/server/a.h", "cli/a.h"), ElementsAre(HasSubstr("cli")));
}

TEST(HouseIncludes, SistersDoNotKnowEachOther) {
  EXPECT_THAT(includes("src/checkpoint/a.h", "backend/ops.h"), ElementsAre(HasSubstr("backend")));
  EXPECT_THAT(includes("src/backend/a.h", "checkpoint/a.h"), ElementsAre(HasSubstr("checkpoint")));
  EXPECT_THAT(includes("src/text/a.h", "tensor/a.h"), ElementsAre(HasSubstr("tensor")));
  EXPECT_THAT(includes("src/engine/a.h", "text/a.h"), ElementsAre(HasSubstr("text")));
}

TEST(HouseIncludes, ATestBesideItsFileKeepsTheArrow) {
  EXPECT_THAT(includes("src/base/a_test.cc", "model/a.h"), ElementsAre(HasSubstr("model")));
}

TEST(HouseIncludes, OnlyTheFactoryNamesALeaf) {
  EXPECT_THAT(includes("src/backend/factory.cc", "backend/cpu/a.h"), IsEmpty());
  EXPECT_THAT(includes("src/backend/cpu/reference/a.cc", "backend/cpu/a.h"), IsEmpty());
  EXPECT_THAT(includes("src/backend/cpu/a.cc", "backend/ops.h"), IsEmpty());
  EXPECT_THAT(includes("tests/ops/a.cc", "backend/cpu/a.h"), IsEmpty());
  EXPECT_THAT(includes("bench/kernels/a.cc", "backend/cuda/a.h"), IsEmpty());
  EXPECT_THAT(includes("src/backend/ops.cc", "backend/cpu/a.h"), ElementsAre(HasSubstr("leaf")));
  EXPECT_THAT(includes("src/model/a.cc", "backend/cpu/a.h"), ElementsAre(HasSubstr("leaf")));
  EXPECT_THAT(includes("src/cli/a.cc", "backend/cuda/a.h"), ElementsAre(HasSubstr("leaf")));
  EXPECT_THAT(includes("src/backend/cpu/a.cc", "backend/cuda/a.h"), ElementsAre(HasSubstr("leaf")));
}

TEST(HouseIncludes, OnlyTheEdgesCallTheFactory) {
  EXPECT_THAT(includes("src/cli/run.cc", "backend/factory.h"), IsEmpty());
  EXPECT_THAT(includes("src/model/a_test.cc", "backend/factory.h"), IsEmpty());
  EXPECT_THAT(includes("src/engine/a.cc", "backend/factory.h"), ElementsAre(HasSubstr("factory")));
  EXPECT_THAT(includes("src/backend/cpu/a.cc", "backend/factory.h"),
              ElementsAre(HasSubstr("factory")));
}

TEST(HouseIncludes, AreSpelledFromSrc) {
  EXPECT_THAT(includes("src/base/a.cc", "../tensor/a.h"), ElementsAre(HasSubstr("..")));
  EXPECT_THAT(includes("tests/ops/a.cc", "../a.h"), ElementsAre(HasSubstr("..")));
  EXPECT_THAT(includes("src/base/a.cc", "a.h"), ElementsAre(HasSubstr("room/file.h")));
  EXPECT_THAT(includes("src/attic/a.cc", "base/a.h"), ElementsAre(HasSubstr("no room")));
  EXPECT_THAT(check_includes({"src/base/a.cc", "#include <tensor/a.h>\n"}),
              ElementsAre(HasSubstr("in quotes")));
  EXPECT_THAT(check_includes({"src/base/a.cc", "#include <vector>\n#include <sys/stat.h>\n"}),
              IsEmpty());
}

TEST(HouseIncludes, OddSpacingIsStillAnInclude) {
  EXPECT_THAT(check_includes({"src/base/a.cc", "\n  #  include\t\"cli/a.h\"  // why\n"}),
              ElementsAre(HasSubstr("src/base/a.cc:2:")));
  EXPECT_THAT(check_includes({"src/base/a.cc", "// #include \"cli/a.h\"\n"}), IsEmpty());
}

TEST(HousePragmaOnce, IsWanted) {
  EXPECT_THAT(check_pragma_once({"src/base/a.h", "// About.\n#pragma once\n"}), IsEmpty());
  EXPECT_THAT(check_pragma_once({"src/base/a.h", "// #pragma once\nint x;\n"}),
              ElementsAre(HasSubstr("src/base/a.h")));
  EXPECT_THAT(check_pragma_once({"src/backend/cpu/a_inl.h", "#ifdef HWY_TARGET_TOGGLE\n"}),
              IsEmpty());
  EXPECT_THAT(check_pragma_once({"src/backend/cpu/a_inl.h", "#pragma once\n"}),
              ElementsAre(HasSubstr("HWY_TARGET_TOGGLE")));
}

TEST(HouseMachinePaths, AreFound) {
  const std::string home = std::string("/ho") + "me/";
  EXPECT_THAT(check_machine_paths({"a.py", "x = 1\nopen('" + home + "me/x')\n"}),
              ElementsAre(HasSubstr("a.py:2:")));
  EXPECT_THAT(check_machine_paths({"a.md", home + "me"}), ElementsAre(HasSubstr("a.md:1:")));
  EXPECT_THAT(check_machine_paths({"a.md", "https://example.org" + home + "page ~/x /usr/lib"}),
              IsEmpty());
}

TEST(HouseLengths, LongFilesAreListedAndOnlyShrink) {
  EXPECT_THAT(check_lengths({{"a.cc", 600}, {"b.cc", 700}}, {{"b.cc", 700}}), IsEmpty());
  EXPECT_THAT(check_lengths({{"a.cc", 601}}, {}), ElementsAre(HasSubstr("601 lines")));
  EXPECT_THAT(check_lengths({{"a.cc", 701}}, {{"a.cc", 700}}), ElementsAre(HasSubstr("grown")));
  EXPECT_THAT(check_lengths({{"a.cc", 650}}, {{"a.cc", 700}}), ElementsAre(HasSubstr("lower")));
  EXPECT_THAT(check_lengths({{"a.cc", 500}}, {{"a.cc", 700}}), ElementsAre(HasSubstr("off the")));
  EXPECT_THAT(check_lengths({}, {{"gone.cc", 700}}), ElementsAre(HasSubstr("gone.cc")));
}

TEST(HouseLengths, CountsTheLastLineWithoutItsEnd) {
  EXPECT_EQ(count_lines(""), 0);
  EXPECT_EQ(count_lines("a\n"), 1);
  EXPECT_EQ(count_lines("a\nb"), 2);
}

TEST(HouseLengths, TheListIsRead) {
  const auto list = parse_long_files("# why\n\nsrc/a.cc 700  # reason\n");
  ASSERT_TRUE(list.has_value());
  EXPECT_THAT(*list, ElementsAre(std::pair<const std::string, int64_t>("src/a.cc", 700)));
  EXPECT_FALSE(parse_long_files("src/a.cc\n").has_value());
  EXPECT_FALSE(parse_long_files("src/a.cc many\n").has_value());
  EXPECT_FALSE(parse_long_files("src/a.cc -1\n").has_value());
}

TEST(HouseDocs, NameFilesThatExist) {
  const auto exists = [](const std::string& path) {
    return path == "src/backend/ops.h" || path == "tests/house" || path == "docs/testing.md";
  };
  const auto complaints = [&](const std::string& text) {
    return check_doc_paths({"docs/a.md", text}, exists);
  };
  EXPECT_THAT(complaints("see `backend/ops.h`, `src/backend/ops.h` and `tests/house/`\n"),
              IsEmpty());
  EXPECT_THAT(complaints("[testing](testing.md#top) [x](https://example.org/y)\n"), IsEmpty());
  EXPECT_THAT(complaints("`text/event-stream`, `a/b`, `build/pewter`, `src/<room>`\n"), IsEmpty());
  EXPECT_THAT(complaints("```\n`src/gone.h`\n```\n"), IsEmpty());
  EXPECT_THAT(complaints("x\nsee `backend/gone.h`\n"),
              ElementsAre("docs/a.md:2: no such file: backend/gone.h"));
  EXPECT_THAT(complaints("`tests/gone`"), ElementsAre(HasSubstr("tests/gone")));
  EXPECT_THAT(complaints("[x](gone.md)"), ElementsAre(HasSubstr("gone.md")));
  EXPECT_THAT(complaints("[x](../README.md)"), ElementsAre(HasSubstr("README.md")));
}

TEST(HouseTree, StaysSmall) {
  EXPECT_THAT(check_tree_size(kLargestTreeBytes), IsEmpty());
  EXPECT_THAT(check_tree_size(kLargestTreeBytes + 1), ElementsAre(HasSubstr("bytes")));
}

}  // namespace
}  // namespace pewter::house
