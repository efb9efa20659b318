// `pewter inspect` on the bundled model, whole and broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Inspect, ShowsWhatTheModelIs) {
  const ProgramResult result = run_program({"inspect", demo_model()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  for (const char* fact : {"6 gated delta net, 2 full attention", "16 experts of 128",
                           "int4_group128", "it fits", "8 192 tokens of context"})
    EXPECT_THAT(result.out, HasSubstr(fact));
}

TEST(Inspect, SaysTheSameAsJson) {
  const ProgramResult result = run_program({"inspect", demo_model(), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out).value();
  const Json& architecture = *json.find("architecture");
  EXPECT_EQ(architecture.find("layers")->as_integer(), 8);
  EXPECT_EQ(architecture.find("experts")->as_integer(), 16);
  EXPECT_TRUE(architecture.find("prediction_layer")->as_bool());
  // 6 layers of 4 heads of 128 x 128 floats.
  EXPECT_EQ(json.find("recurrent_bytes_per_sequence")->as_integer(), 6 * 4 * 128 * 128 * 4);
  // 2 layers, keys and values, 2 heads of 256.
  const int64_t elements = 2 * 2 * 2 * 256;
  const int64_t kv = json.find("kv_bytes_per_token")->as_integer();
  EXPECT_TRUE(kv == 2 * elements || kv == 4 * elements) << kv;
  const Json& total = *json.find("total_without_prediction_layer");
  int64_t disk_bytes = 0, token_bytes = 0;
  for (const Json& component : json.find("components")->as_array()) {
    if (component.find("component")->as_string() == "mtp") continue;
    disk_bytes += component.find("disk_bytes")->as_integer();
    token_bytes += component.find("token_bytes")->as_integer();
  }
  EXPECT_EQ(disk_bytes, total.find("disk_bytes")->as_integer());
  EXPECT_EQ(token_bytes, total.find("token_bytes")->as_integer());
  EXPECT_GT(token_bytes, 0);
  EXPECT_LT(token_bytes, disk_bytes);
  EXPECT_TRUE(json.find("memory")->find("fits")->as_bool());
}

TEST(Inspect, CountsTheHeadThatIsAskedFor) {
  const auto head_bytes = [](const char* head) {
    const ProgramResult result =
        run_program({"inspect", demo_model(), "--json", "--lm-head", head});
    const Json json = Json::parse(result.out).value();
    for (const Json& component : json.find("components")->as_array())
      if (component.find("component")->as_string() == "lm_head")
        return component.find("token_bytes")->as_integer();
    return int64_t{0};
  };
  EXPECT_LT(head_bytes("int8"), 0.6 * static_cast<double>(head_bytes("bf16")));
}

TEST(Inspect, ListsTheFaultsOfABrokenCheckpoint) {
  DemoCopy copy;
  const std::string name = "model-00002-of-00002.safetensors";
  const std::string whole = read_file(demo_model() + "/" + name).value();
  copy.replace(name, whole.substr(0, whole.size() / 2));
  const ProgramResult result = run_program({"inspect", copy.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("faults"));
  EXPECT_THAT(result.err, HasSubstr(name));
}

TEST(Inspect, RefusesWhatIsNoModel) {
  EXPECT_EQ(run_program({"inspect", "/nonexistent"}).exit_code, 1);
  EXPECT_EQ(run_program({"inspect"}).exit_code, 2);
}

}  // namespace
}  // namespace pewter::cli_test
