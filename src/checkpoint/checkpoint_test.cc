#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>

#include "checkpoint/model_path.h"
#include "checkpoint/tensor_names.h"
#include "checkpoint/testing/temp_directory.h"

namespace pewter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TensorData tensor(const std::string& name) { return {name, "U8", {4}, std::vector<std::byte>(4)}; }
std::vector<TensorData> tensors(std::initializer_list<const char*> names) {
  std::vector<TensorData> out;
  for (const char* name : names) out.push_back(tensor(name));
  return out;
}
std::string index_of(std::initializer_list<std::pair<const char*, const char*>> entries) {
  Json::Object map;
  for (const auto& [name, file] : entries) map.emplace_back(name, file);
  return Json(Json::Object{{"weight_map", std::move(map)}}).dump();
}
constexpr const char* kIndex = "model.safetensors.index.json";

std::string error_of(const TempDirectory& directory) {
  const auto checkpoint = Checkpoint::open(directory.path());
  return checkpoint ? "" : checkpoint.error().message;
}

TEST(TensorNames, HaveOneCanonicalForm) {
  for (const char* prefix : {"model.language_model.", "language_model.model.", "model."})
    EXPECT_EQ(canonical_name(std::string(prefix) + "layers.0.mlp.gate.weight"),
              "layers.0.mlp.gate.weight");
  for (const char* head : {"lm_head.weight", "language_model.lm_head.weight"})
    EXPECT_EQ(canonical_name(head), "lm_head.weight");
  EXPECT_EQ(canonical_name("model.mtp.fc.weight"), "mtp.fc.weight");
  EXPECT_EQ(canonical_name("model.visual.pos_embed.weight"), "visual.pos_embed.weight");
  EXPECT_EQ(canonical_name("visual.pos_embed.weight"), "visual.pos_embed.weight");
  EXPECT_EQ(canonical_name("fc.weight"), "fc.weight");
}

TEST(Checkpoint, OpensOneFile) {
  const TempDirectory directory;
  directory.write("config.json", "{\"a\": 1}");
  directory.write("model.safetensors", tensors({"model.norm.weight"}));
  for (const std::string& path :
       {directory.path(), directory.path() + "/", directory.path("model.safetensors")}) {
    const auto checkpoint = Checkpoint::open(path).value();
    ASSERT_NE(checkpoint.find("norm.weight"), nullptr) << path;
    EXPECT_EQ(checkpoint.find("norm.weight")->info.name, "model.norm.weight");
    EXPECT_EQ(checkpoint.config().find("a")->as_integer(), 1);
  }
}

TEST(Checkpoint, FindsTensorsOfAllShards) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  directory.write("model-1.safetensors", tensors({"a"}));
  directory.write("model-2.safetensors", tensors({"b"}));
  directory.write(kIndex, index_of({{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}}));
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  EXPECT_EQ(checkpoint.file_name(*checkpoint.find("b")), "model-2.safetensors");
  EXPECT_THAT(checkpoint.warnings(), ElementsAre());
}

TEST(Checkpoint, TakesOnlyMtpFromOutsideTheIndex) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  directory.write("model-1.safetensors", tensors({"a"}));
  directory.write("extra.safetensors", tensors({"mtp.fc.weight", "stale"}));
  directory.write(kIndex, index_of({{"a", "model-1.safetensors"}}));
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  ASSERT_NE(checkpoint.find("mtp.fc.weight"), nullptr);
  EXPECT_FALSE(checkpoint.find("mtp.fc.weight")->indexed);
  EXPECT_EQ(checkpoint.find("stale"), nullptr);
  EXPECT_THAT(checkpoint.warnings(),
              ElementsAre(HasSubstr("extra.safetensors: 1 tensor is not this file's in the index, "
                                    "such as stale: ignored")));
}

// A shard of an earlier download holds a name the index puts elsewhere: the index decides.
TEST(Checkpoint, IgnoresAStaleShard) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  directory.write("a-stale.safetensors", tensors({"a", "mtp.fc.weight"}));
  directory.write("model-1.safetensors", tensors({"a", "mtp.fc.weight"}));
  directory.write(
      kIndex, index_of({{"a", "model-1.safetensors"}, {"mtp.fc.weight", "model-1.safetensors"}}));
  const auto checkpoint = Checkpoint::open(directory.path()).value();
  EXPECT_EQ(checkpoint.file_name(*checkpoint.find("a")), "model-1.safetensors");
  EXPECT_EQ(checkpoint.file_name(*checkpoint.find("mtp.fc.weight")), "model-1.safetensors");
  EXPECT_THAT(checkpoint.warnings(), ElementsAre(HasSubstr("a-stale.safetensors: 2 tensors")));
}

TEST(Checkpoint, RefusesAnIndexThatDoesNotFit) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  directory.write("model-1.safetensors", tensors({"a"}));
  directory.write(kIndex, index_of({{"a", "model-1.safetensors"},
                                    {"b", "model-1.safetensors"},
                                    {"c", "gone.safetensors"},
                                    {"d", "../x.safetensors"}}));
  const std::string message = error_of(directory);
  EXPECT_THAT(message, HasSubstr("3 faults"));
  EXPECT_THAT(message, HasSubstr("model-1.safetensors: b: is in the index, and not in this file"));
  EXPECT_THAT(message, HasSubstr("gone.safetensors: the index puts 1 tensor in this file, which "
                                 "is not there"));
  EXPECT_THAT(message, HasSubstr("d: is mapped to something that is no file name"));
}

TEST(Checkpoint, RefusesBrokenIndexes) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  directory.write("model-1.safetensors", tensors({"a"}));
  const std::pair<const char*, const char*> cases[] = {
      {"{", "is not valid JSON"},
      {"{}", "has no object \"weight_map\""},
      {R"({"weight_map": {}})", "weight_map: is empty"},
      {R"({"weight_map": {"a": 3}})", "a: is mapped to something that is no file name"},
      {R"({"weight_map": {"a": "model-1.safetensors", "a": "model-1.safetensors"}})",
       "a: is twice in the index"}};
  for (const auto& [text, message] : cases) {
    directory.write(kIndex, text);
    EXPECT_THAT(error_of(directory), HasSubstr(message));
  }
}

TEST(Checkpoint, RefusesOneNameInTwoFiles) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  directory.write("x.safetensors", tensors({"a"}));
  directory.write("y.safetensors", tensors({"a"}));
  EXPECT_THAT(error_of(directory), HasSubstr("y.safetensors: a: is in x.safetensors too"));
  // Also outside an index, which then does not decide.
  directory.write("x.safetensors", tensors({"mtp.a"}));
  directory.write("y.safetensors", tensors({"mtp.a"}));
  directory.write("z.safetensors", tensors({"a"}));
  directory.write(kIndex, index_of({{"a", "z.safetensors"}}));
  EXPECT_THAT(error_of(directory), HasSubstr("y.safetensors: mtp.a: is in x.safetensors too"));
}

TEST(Checkpoint, RefusesTwoSpellingsOfOneParameter) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  directory.write("x.safetensors",
                  tensors({"model.norm.weight", "model.language_model.norm.weight"}));
  EXPECT_THAT(error_of(directory),
              HasSubstr("x.safetensors: model.language_model.norm.weight: is the same parameter as "
                        "model.norm.weight"));
}

TEST(Checkpoint, ListsAllFaultsUpToALimit) {
  const TempDirectory directory;
  directory.write("config.json", "{}");
  std::vector<TensorData> many;
  for (int i = 0; i < 30; ++i) many.push_back(tensor(str_cat("t", 100 + i)));
  directory.write("x.safetensors", many);
  directory.write("y.safetensors", many);
  const std::string message = error_of(directory);
  EXPECT_THAT(message, HasSubstr("30 faults"));
  EXPECT_THAT(message, HasSubstr("t119"));
  EXPECT_THAT(message, testing::Not(HasSubstr("t120")));
  EXPECT_THAT(message, HasSubstr("… and 10 more"));
}

TEST(ModelPath, ResolvesAHubCacheFolder) {
  const TempDirectory directory;
  const auto add = [&](const std::string& revision) {
    directory.write("models--o--n/snapshots/" + revision + "/config.json", "{}");
    directory.write("models--o--n/snapshots/" + revision + "/model.safetensors", tensors({"a"}));
  };
  const std::string folder = directory.path("models--o--n");
  std::filesystem::create_directories(folder + "/snapshots");
  EXPECT_THAT(resolve_model_path(folder).error().message, HasSubstr("no snapshot"));
  add("1111");
  EXPECT_THAT(resolve_model_path(folder).value().directory, HasSubstr("snapshots/1111"));
  add("2222");
  EXPECT_THAT(resolve_model_path(folder).error().message,
              HasSubstr("2 snapshots (1111, 2222) and no refs/main"));
  directory.write("models--o--n/refs/main", "2222\n");
  EXPECT_THAT(resolve_model_path(folder).value().directory, HasSubstr("snapshots/2222"));
  EXPECT_NE(Checkpoint::open(folder).value().find("a"), nullptr);
  directory.write("models--o--n/refs/main", "3333");
  EXPECT_THAT(resolve_model_path(folder).error().message,
              HasSubstr("refs/main names snapshot 3333, which is not among 1111, 2222"));
}

TEST(ModelPath, SaysWhatWasLookedFor) {
  const TempDirectory directory;
  EXPECT_THAT(resolve_model_path(directory.path("gone")).error().message,
              HasSubstr("no such file or directory"));
  directory.write("notes.txt", "");
  EXPECT_THAT(resolve_model_path(directory.path("notes.txt")).error().message,
              HasSubstr("a model is a directory or a .safetensors file"));
  EXPECT_THAT(resolve_model_path(directory.path()).error().message,
              HasSubstr("looked for config.json (or, in a hub cache folder, "
                        "snapshots/*/config.json) and found notes.txt"));
  directory.write("config.json", "{}");
  EXPECT_THAT(resolve_model_path(directory.path()).error().message,
              HasSubstr("looked for *.safetensors and found config.json, notes.txt"));
  directory.write("config.json", "[1");
  directory.write("model.safetensors", tensors({"a"}));
  EXPECT_THAT(error_of(directory), HasSubstr("config.json: not valid JSON"));
}

}  // namespace
}  // namespace pewter
