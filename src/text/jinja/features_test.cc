// Holds the engine against Python's Jinja2 on small templates, one feature each
// (tools/make_template_fixtures.py writes the file, tools/template_snippets.py holds the
// templates).
#include <gtest/gtest.h>

#include "base/file.h"
#include "text/jinja/template.h"

namespace pewter::jinja {
namespace {

constexpr int kShownFailures = 40;

// 2025-03-09 07:05:04, a Sunday, the 68th day: the moment that the fixture was rendered at.
std::tm fixture_time() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 2;
  time.tm_mday = 9;
  time.tm_hour = 7;
  time.tm_min = 5;
  time.tm_sec = 4;
  time.tm_yday = 67;
  return time;
}

class Features : public testing::Test {
 protected:
  Features()
      : fixture_(Json::parse(read_file(str_cat(PEWTER_SOURCE_DIR,
                                               "/tests/golden/text/template_features.json"))
                                 .value())
                     .value()) {
    for (const auto& [name, value] : fixture_.find("context")->as_object())
      variables_.push_back({name, &value});
  }

  Result<std::string> render(std::string_view source) const {
    TRY_ASSIGN(const Template parsed, Template::parse(source));
    TRY_ASSIGN(const Text text, parsed.render(variables_, fixture_time(), RenderLimits{}));
    return text.bytes;
  }

  const Json fixture_;
  std::vector<Template::Variable> variables_;
};

TEST_F(Features, PrintWhatPythonPrints) {
  int failures = 0;
  for (const Json& item : fixture_.find("cases")->as_array()) {
    const std::string& source = item.find("in")->as_string();
    const Result<std::string> got = render(source);
    std::string problem;
    if (const Json* out = item.find("out")) {
      if (!got)
        problem = str_cat("failed: ", got.error().message, "\n  want ", out->as_string());
      else if (*got != out->as_string())
        problem = str_cat("printed ", *got, "\n  want    ", out->as_string());
    } else if (const Json* raised = item.find("raise")) {
      if (got || got.error().code != ErrorCode::kInvalidArgument ||
          got.error().message != raised->as_string())
        problem = str_cat("did not raise: ", raised->as_string());
    } else if (item.find("any") != nullptr) {
      if (!got) problem = str_cat("failed: ", got.error().message);
    } else if (got) {
      problem = str_cat("did not fail but printed ", *got);
    } else if (got.error().message.find("line ") == std::string::npos) {
      problem = str_cat("the error has no line: ", got.error().message);
    }
    if (!problem.empty() && ++failures <= kShownFailures)
      ADD_FAILURE() << source << "\n  " << problem;
  }
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace pewter::jinja
