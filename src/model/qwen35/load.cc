#include "model/qwen35/load.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/memory_info.h"
#include "base/thread_pool.h"
#include "checkpoint/linear_reader.h"
#include "checkpoint/page_cache.h"
#include "model/qwen35/load_checks.h"
#include "tensor/formats/int8_row.h"

namespace pewter {
namespace {

// One read: a piece of a matrix, or a vector.
struct WorkItem {
  const MatrixPlan* matrix = nullptr;
  int64_t index = 0;  // of the matrix in its stack
  RowRange rows;
  const VectorPlan* vector = nullptr;
  std::span<float> floats;  // where the vector goes on the host
  int64_t bytes = 0;        // of the file
  int file = 0;
  int64_t offset = 0;
};

// Waiting for a disk needs no core: a few threads more than there are cores keep reads in flight.
int thread_count(const LoadOptions& options, size_t items) {
  const int wanted = options.threads > 0 ? options.threads : std::clamp(available_threads(), 4, 16);
  return std::clamp(wanted, 1, std::max(1, static_cast<int>(items)));
}

// Buffers of one thread: while the device takes the rows of one, the next are read into another.
class RowRing {
 public:
  explicit RowRing(RowUploader& uploader) : uploader_(uploader) {
    const HostMemory memory = [&uploader](int64_t bytes) { return uploader.allocate_host(bytes); };
    for (size_t i = 0; i < kSlots; ++i) slots_.push_back({.buffers = RowBuffers(memory)});
  }
  ~RowRing() {
    for (Slot& slot : slots_) uploader_.finish(slot.pending);
  }
  RowRing(const RowRing&) = delete;
  RowRing& operator=(const RowRing&) = delete;

  // Nobody reads what is in them any more. The same until rows of theirs are on their way.
  RowBuffers& buffers() {
    Slot& slot = slots_[at_];
    uploader_.finish(std::exchange(slot.pending, 0));
    return slot.buffers;
  }
  // Rows that lie in buffers().
  Status store(WeightMatrix& to, int64_t index, int64_t row_begin, const WeightMatrix& rows) {
    Slot& slot = slots_[at_];
    TRY_ASSIGN(slot.pending, uploader_.begin(to, index, row_begin, rows));
    if (slot.pending != 0) at_ = (at_ + 1) % kSlots;
    return {};
  }

 private:
  static constexpr size_t kSlots = 2;
  struct Slot {
    RowBuffers buffers;
    int64_t pending = 0;
  };
  RowUploader& uploader_;
  std::vector<Slot> slots_;
  size_t at_ = 0;
};

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const LoadPlan& plan, Device& device,
         const LoadOptions& options, Findings& findings)
      : checkpoint_(checkpoint),
        plan_(plan),
        device_(device),
        options_(options),
        findings_(findings) {}

  // Bytes the device will hold; refuses when it cannot.
  Result<int64_t> check_memory() const {
    const int64_t needed = stored_bytes(plan_, device_);
    const int64_t available = device_.available_bytes();
    if (needed <= available) return needed;
    return Error{ErrorCode::kResourceExhausted,
                 str_cat(checkpoint_.directory(), ": the weights need ",
                         format_bytes(static_cast<double>(needed)), " (", needed, " bytes) on ",
                         device_.name(), ", where ", format_bytes(static_cast<double>(available)),
                         " (", available, " bytes) are available")};
  }

  Status run(ModelWeights& weights) {
    for (const MatrixPlan& plan : plan_.matrices) {
      TRY_ASSIGN(*plan.parameter.target, device_.make_weight(plan.spec));
      if (plan.int8_head == nullptr) continue;
      TRY_ASSIGN(*plan.int8_head, device_.make_weight(plan.int8_head_spec()));
    }
    TRY_ASSIGN(Buffer vectors, device_.allocate(vector_elements() * 4));
    std::vector<float> floats(static_cast<size_t>(vector_elements()));
    make_items(floats, vectors.data());
    for (int f = 0; f < checkpoint_.file_count(); ++f)
      direct_io_.push_back(options_.direct_io.value_or(!is_cached(checkpoint_.file(f).file())));

    uploader_ = device_.make_row_uploader();
    std::vector<std::thread> threads;
    const int count = thread_count(options_, items_.size());
    for (int i = 1; i < count; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    TRY(first_error_);
    if (options_.progress) options_.progress(done_, total_);
    check_plausible(plan_, floats, findings_);
    if (findings_.has_faults()) return findings_.to_error(checkpoint_.directory());
    device_.copy_to_device(vectors.data(), std::as_bytes(std::span(floats)));
    weights.vectors.push_back(std::move(vectors));
    return {};
  }

 private:
  int64_t vector_elements() const {
    int64_t elements = 0;
    for (const VectorPlan& plan : plan_.vectors) elements += plan.stored_elements();
    return elements;
  }

  // In file order, so that threads together read each file from front to back.
  void make_items(std::vector<float>& floats, std::byte* on_device) {
    for (const MatrixPlan& plan : plan_.matrices) {
      for (size_t index = 0; index < plan.sources.size(); ++index) {
        const LinearSource& source = plan.sources[index];
        const int64_t bytes_per_row = source.file_bytes() / source.n;
        for (const RowRange rows : split_rows(source))
          items_.push_back({.matrix = &plan,
                            .index = static_cast<int64_t>(index),
                            .rows = rows,
                            .bytes = bytes_per_row * rows.size(),
                            .file = source.values->file,
                            .offset = source.values->info.begin + source.values_offset +
                                      bytes_per_row * rows.begin});
      }
    }
    size_t begin = 0;
    for (const VectorPlan& plan : plan_.vectors) {
      const auto size = static_cast<size_t>(plan.parameter.elements());
      items_.push_back({.vector = &plan,
                        .floats = std::span(floats).subspan(begin, size),
                        .bytes = plan.tensor->info.bytes(),
                        .file = plan.tensor->file,
                        .offset = plan.tensor->info.begin});
      const std::vector<int64_t>& shape = plan.parameter.view_shape;
      std::byte* data = on_device + begin * sizeof(float);
      *plan.parameter.target = shape.size() == 1
                                   ? TensorView(data, DType::kF32, {shape[0]})
                                   : TensorView(data, DType::kF32, {shape[0], shape[1]});
      begin += static_cast<size_t>(plan.stored_elements());
    }
    std::ranges::stable_sort(
        items_, {}, [](const WorkItem& item) { return std::pair(item.file, item.offset); });
    for (const WorkItem& item : items_) total_ += item.bytes;
  }

  void work() {
    LinearReader reader(checkpoint_, direct_io_, findings_);
    RowRing ring(*uploader_);
    while (!stop_) {
      const size_t i = next_.fetch_add(1);
      if (i >= items_.size()) return;
      Status status = load(reader, ring, items_[i]);
      const std::lock_guard lock(mutex_);
      if (!status) {
        if (first_error_) first_error_ = std::move(status);
        stop_ = true;
        return;
      }
      done_ += items_[i].bytes;
      if (options_.progress && done_ < total_ && since_progress_.seconds() > 0.1) {
        since_progress_.restart();
        options_.progress(done_, total_);
      }
    }
  }

  // Errors name file and tensor.
  Status load(LinearReader& reader, RowRing& ring, const WorkItem& item) {
    Status loaded;
    if (item.vector != nullptr) {
      loaded = reader.read_floats(*item.vector->tensor, item.floats);
    } else {
      Status stored;
      loaded = reader.read(source_of(item), item.rows, item.matrix->spec.has_zeros, ring.buffers(),
                           [&](const WeightMatrix& rows) { stored = store(item, ring, rows); });
      if (loaded) loaded = std::move(stored);
    }
    if (loaded) return {};
    const StoredTensor& tensor =
        item.vector != nullptr ? *item.vector->tensor : *source_of(item).values;
    return loaded.error().within(str_cat(checkpoint_.file_name(tensor), ": ", tensor.info.name));
  }

  static const LinearSource& source_of(const WorkItem& item) {
    return item.matrix->sources[static_cast<size_t>(item.index)];
  }

  Status store(const WorkItem& item, RowRing& ring, const WeightMatrix& rows) {
    const MatrixPlan& plan = *item.matrix;
    const auto store_as_int8 = [&](WeightMatrix& to) -> Status {
      TRY_ASSIGN(const WeightMatrix codes, encode_int8(rows));
      device_.store_rows(to, item.index, item.rows.begin, codes);
      return {};
    };
    if (plan.spec.format == WeightFormat::kInt8Row) return store_as_int8(*plan.parameter.target);
    TRY(ring.store(*plan.parameter.target, item.index, item.rows.begin, rows));
    return plan.int8_head == nullptr ? Status() : store_as_int8(*plan.int8_head);
  }

  const Checkpoint& checkpoint_;
  const LoadPlan& plan_;
  Device& device_;
  const LoadOptions& options_;
  Findings& findings_;
  std::vector<bool> direct_io_;
  std::unique_ptr<RowUploader> uploader_;
  std::vector<WorkItem> items_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards what follows while threads run
  int64_t done_ = 0, total_ = 0;
  Status first_error_;
  Stopwatch since_progress_;
};

}  // namespace

int64_t stored_bytes(const LoadPlan& plan, const Device& device, bool with_mtp) {
  int64_t bytes = 0;
  for (const MatrixPlan& matrix : plan.matrices)
    if (with_mtp || matrix.parameter.component != Component::kMtp)
      bytes += matrix.stored_bytes(
          [&](const WeightSpec& spec) { return device.stored_weight_bytes(spec); });
  for (const VectorPlan& vector : plan.vectors)
    if (with_mtp || vector.parameter.component != Component::kMtp)
      bytes += 4 * vector.stored_elements();
  return bytes;
}

Result<LoadedWeights> load_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                   Device& device, const LoadOptions& options) {
  const Stopwatch clock;
  LoadedWeights loaded;
  Findings findings;
  for (const std::string& warning : checkpoint.warnings()) findings.warn(warning);
  TRY_ASSIGN(const LoadPlan plan,
             plan_load(checkpoint, config, options.mtp, loaded.weights, findings, options.head));
  if (options.on_plan) TRY(options.on_plan(plan));
  Loader loader(checkpoint, plan, device, options, findings);
  TRY_ASSIGN(loaded.report.stored_bytes, loader.check_memory());
  TRY(loader.run(loaded.weights));
  if (config.tied_embeddings && !loaded.weights.head.defined())
    loaded.weights.head = loaded.weights.embed;
  loaded.report.file_bytes = plan.file_bytes();
  loaded.report.seconds = clock.seconds();
  loaded.report.warnings = findings.warnings();
  return loaded;
}

}  // namespace pewter
