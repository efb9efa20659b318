#include "golden_model.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/checkpoint.h"

namespace pewter {

Golden Golden::open(const std::string& path) {
  Findings findings;
  const SafetensorsFile file = SafetensorsFile::open(path, findings).value();
  Golden golden;
  for (const TensorInfo& info : file.tensors()) {
    const auto count = static_cast<size_t>(info.bytes() / 4);
    if (info.dtype == DType::kF32) {
      Floats tensor{.shape = info.shape, .values = std::vector<float>(count)};
      file.file().read_at(info.begin, std::as_writable_bytes(std::span(tensor.values))).value();
      golden.floats_[info.name] = std::move(tensor);
    } else {
      std::vector<int32_t> ids(count);
      file.file().read_at(info.begin, std::as_writable_bytes(std::span(ids))).value();
      golden.ids_[info.name] = std::move(ids);
    }
  }
  return golden;
}

std::unique_ptr<LoadedGolden> load_golden(const std::string& directory, const std::string& device,
                                          const RunnerOptions& options, int threads, LmHead head,
                                          const std::vector<int64_t>& taps) {
  auto loaded = std::make_unique<LoadedGolden>();
  loaded->backend = make_backend({.device = device, .threads = threads}).value();
  const Checkpoint checkpoint = Checkpoint::open(directory).value();
  ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  ModelWeights weights =
      load_weights(checkpoint, config, *loaded->backend.device, {.head = head}).value().weights;
  loaded->model =
      Qwen35Model::make(*loaded->backend.device, std::move(config), std::move(weights)).value();
  loaded->model.taps = taps;
  loaded->runner =
      ModelRunner::make(loaded->model, *loaded->backend.device, *loaded->backend.ops, options)
          .value();
  return loaded;
}

std::string shared_folder(const std::string& name) {
  const char* set = std::getenv("PEWTER_SHARED");
  const std::string root = set != nullptr ? set : std::string(PEWTER_SOURCE_DIR) + "/../shared";
  const std::string path = root + "/" + name;
  return std::filesystem::exists(path) ? path : std::string();
}

double relative_distance(const float* a, const float* b, int64_t n) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

std::vector<std::string> golden_devices(std::initializer_list<std::string> always) {
  std::vector<std::string> devices = always;
  if (std::ranges::count(backend_names(), "cuda") > 0) devices.emplace_back("cuda");
  return devices;
}
std::string why_unusable(const std::string& device) {
  const Result<Backend> backend = make_backend({.device = device});
  return backend ? "" : backend.error().message;
}

std::vector<float> row_floats(Device& device, const TensorView& tensor, int64_t row) {
  const TensorView from = tensor[row];
  std::vector<std::byte> bytes(static_cast<size_t>(from.bytes()));
  device.copy_to_host(bytes, from.data());
  std::vector<float> out(static_cast<size_t>(tensor.dim(1)));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = load_float(bytes.data(), from.dtype(), static_cast<int64_t>(i));
  return out;
}

void set_row(Device& device, const TensorView& tensor, int64_t row, std::span<const float> values) {
  const TensorView to = tensor[row];
  std::vector<std::byte> bytes(static_cast<size_t>(to.bytes()));
  for (size_t i = 0; i < values.size(); ++i)
    store_float(bytes.data(), to.dtype(), static_cast<int64_t>(i), values[i]);
  device.copy_to_device(to.data(), bytes);
}

double worst_row(Device& device, const TensorView& ours, const Golden::Floats& golden) {
  CHECK(ours.dim(0) == golden.rows() && ours.dim(1) == golden.cols(),
        "shapes differ: ", ours.dim(0), " x ", ours.dim(1), " and ", golden.rows(), " x ",
        golden.cols());
  double worst = 0;
  for (int64_t r = 0; r < golden.rows(); ++r)
    worst = std::max(
        worst, relative_distance(row_floats(device, ours, r).data(), golden.row(r), golden.cols()));
  return worst;
}

double whole_distance(Device& device, const TensorView& ours, const Golden::Floats& golden) {
  std::vector<float> all;
  for (int64_t r = 0; r < golden.rows(); ++r) {
    const std::vector<float> row = row_floats(device, ours, r);
    all.insert(all.end(), row.begin(), row.end());
  }
  CHECK(all.size() == golden.values.size(), "shapes differ");
  return relative_distance(all.data(), golden.values.data(), static_cast<int64_t>(all.size()));
}

}  // namespace pewter
