#include "support/test_rig.h"

#include <algorithm>
#include <cmath>

#include "support/replaying_backend.h"

namespace pewter::test {

std::vector<RigCase> rig_cases() {
  const auto int4 = WeightFormat::kInt4Group128, fp8 = WeightFormat::kFp8Block128;
  const RigCase kinds[] = {
      {.name = "moe_bf16", .config = tiny_moe_config(), .seed = 11},
      {.name = "dense_bf16", .config = tiny_dense_config(), .seed = 12},
      {.name = "moe_int4_fp8",
       .config = grouped_moe_config(),
       .formats = {.mixer = int4, .experts = int4, .shared = fp8},
       .seed = 13},
      {.name = "dense_fp8_int4",
       .config = grouped_dense_config(),
       .formats = {.mixer = fp8, .experts = int4, .scale_dtype = DType::kBF16, .zeros = true},
       .seed = 14},
  };
  std::vector<RigCase> cases;
  std::vector<std::pair<std::string, std::string>> devices = {{"cpu-reference", "reference_"},
                                                              {"cpu", "fast_"}};
  if (std::ranges::count(backend_names(), "cuda") > 0) devices.emplace_back("cuda", "cuda_");
  for (const auto& [device, prefix] : devices)
    for (RigCase kind : kinds) {
      kind.name = prefix + kind.name;
      kind.device = device;
      cases.push_back(std::move(kind));
    }
  RigCase replayed = kinds[0];
  replayed.name = "replayed_" + replayed.name;
  replayed.device = "cpu-replayed";
  cases.push_back(std::move(replayed));
  return cases;
}

std::vector<RigCase> small_rig_cases() {
  std::vector<RigCase> cases = rig_cases();
  std::erase_if(cases, [](const RigCase& tested) { return !tested.name.ends_with("_bf16"); });
  return cases;
}

void PrintTo(const RigCase& rig_case, std::ostream* out) { *out << rig_case.name; }

void RigTest::SetUp() {
  if (GetParam().device != "cuda") return;
  if (const Result<Backend> backend = make_backend({.device = "cuda"}); !backend)
    GTEST_SKIP() << backend.error().message;
}

Backend make_rig_backend(const RigCase& rig_case) {
  const bool replays = rig_case.device == "cpu-replayed";
  Backend backend =
      make_backend({.device = replays ? "cpu" : rig_case.device, .threads = rig_case.threads})
          .value();
  return replays ? make_replaying(std::move(backend)) : std::move(backend);
}

std::unique_ptr<TestRig> TestRig::make(const RigCase& rig_case, const RunnerOptions& options) {
  auto rig = std::make_unique<TestRig>();
  rig->backend = make_rig_backend(rig_case);
  rig->model =
      make_random_model(*rig->backend.device, rig_case.config, rig_case.formats, rig_case.seed)
          .value();
  rig->runner =
      ModelRunner::make(rig->model, *rig->backend.device, *rig->backend.ops, options).value();
  return rig;
}

std::vector<float> TestRig::prefill(SequenceState& sequence, std::span<const int32_t> tokens) {
  const auto chunk = static_cast<size_t>(runner->options().chunk_rows);
  for (; !tokens.empty(); tokens = tokens.subspan(std::min(chunk, tokens.size())))
    runner->prefill({.sequence = &sequence,
                     .tokens = tokens.first(std::min(chunk, tokens.size())),
                     .logits = LogitsWanted::kLast});
  return logits().front();
}

Rows TestRig::decode(std::span<const SequenceRows> rows) {
  runner->decode(rows);
  return logits();
}

Rows TestRig::decode(SequenceState& sequence, std::span<const int32_t> tokens) {
  const SequenceRows rows{.sequence = &sequence, .tokens = tokens, .logits = LogitsWanted::kAll};
  return decode(std::span(&rows, 1));
}

Rows TestRig::steps(SequenceState& sequence, std::span<const int32_t> tokens) {
  Rows all;
  for (size_t i = 0; i < tokens.size(); ++i) {
    all.push_back(decode(sequence, tokens.subspan(i, 1)).front());
    runner->accept(sequence, 1);
  }
  return all;
}

std::vector<std::byte> TestRig::export_slot(SequenceState& sequence) {
  runner->fold(sequence);
  const RecurrentState& recurrent = runner->pool().recurrent;
  std::vector<std::byte> bytes(static_cast<size_t>(recurrent.export_bytes()));
  recurrent.export_slot(sequence.slot, bytes);
  return bytes;
}

SequenceState TestRig::copy(SequenceState& sequence, TestRig& to, int64_t positions) {
  SequenceState other = to.open(positions);
  to.runner->pool().recurrent.import_slot(other.slot, export_slot(sequence));
  other.length = sequence.length;
  const auto copy_page = [&](std::byte* target, const std::byte* source, int64_t bytes,
                             size_t page) {
    std::vector<std::byte> host(static_cast<size_t>(bytes));
    backend.device->copy_to_host(host, source + sequence.pages[page] * bytes);
    to.backend.device->copy_to_device(target + other.pages[page] * bytes, host);
  };
  for (int64_t i = 0; i < runner->pool().kv.layers(); ++i) {
    const KvLayer source = runner->pool().kv.layer(i), target = to.runner->pool().kv.layer(i);
    for (size_t page = 0; page < static_cast<size_t>(pages_for(sequence.length)); ++page) {
      copy_page(target.keys, source.keys, source.key_page_bytes, page);
      copy_page(target.values, source.values, source.value_page_bytes, page);
    }
  }
  return other;
}

Rows TestRig::logits() const {
  const TensorView& from = runner->logits();
  Rows rows(static_cast<size_t>(from.dim(0)), std::vector<float>(static_cast<size_t>(from.dim(1))));
  for (size_t row = 0; row < rows.size(); ++row)
    backend.device->copy_to_host(std::as_writable_bytes(std::span(rows[row])),
                                 from[static_cast<int64_t>(row)].data());
  return rows;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    square += static_cast<double>(a[i]) * a[i];
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return largest / std::sqrt(square / static_cast<double>(a.size()));
}

}  // namespace pewter::test
