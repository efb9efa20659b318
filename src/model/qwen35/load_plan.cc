#include "model/qwen35/load_plan.h"

#include <algorithm>
#include <array>
#include <map>

namespace pewter {
namespace {

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const QuantConfig& quant, Findings& findings)
      : checkpoint_(checkpoint),
        quant_(quant),
        findings_(findings),
        claims_(checkpoint.tensors().size()) {}

  void add(MatrixParameter parameter) {
    MatrixPlan plan{.parameter = std::move(parameter)};
    const bool complete = plan.parameter.is_experts() ? find_experts(plan) : find_single(plan);
    if (!complete) return;
    plan.spec = plan.sources[0].spec();
    plan.spec.count = plan.parameter.count;
    // One asymmetric member gives the stack zero points; the others' are filled with 8.
    plan.spec.has_zeros = std::ranges::any_of(plan.sources, &LinearSource::has_zeros);
    out_.matrices.push_back(std::move(plan));
  }
  void add(VectorParameter parameter) {
    const StoredTensor* tensor =
        find_vector(checkpoint_, parameter.name, parameter.shapes, claims_, findings_);
    if (tensor != nullptr) out_.vectors.push_back({std::move(parameter), tensor});
  }

  // The hybrid replaces every shared expert's three matrices; some of them only means that a tool
  // stopped half-way.
  void check_hybrid(int64_t layers) {
    if (!quant_.is_int4()) return;
    int64_t replaced = 0;
    for (const MatrixPlan& plan : out_.matrices)
      replaced += plan.parameter.component == Component::kSharedExperts &&
                  plan.spec.format == WeightFormat::kFp8Block128;
    if (replaced != 0 && replaced != 3 * layers)
      findings_.fault("", "shared_expert",
                      str_cat(replaced, " of ", 3 * layers,
                              " shared expert weights are FP8: all or none can be"));
  }

  void check_leftovers(bool with_mtp, bool tied) {
    std::map<std::string_view, std::vector<std::string_view>> foreign;  // by file
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      if (claims_[static_cast<size_t>(tensor.id)] || is_ignored(tensor.name, with_mtp)) continue;
      if (!tensor.indexed) {
        foreign[checkpoint_.file_name(tensor)].push_back(tensor.info.name);
        continue;
      }
      const bool tied_head = tied && tensor.name.starts_with("lm_head.");
      findings_.fault(checkpoint_.file_name(tensor), tensor.info.name,
                      tied_head ? "is stored, but tie_word_embeddings is true"
                                : "belongs to no parameter of this model");
    }
    for (const auto& [file, names] : foreign)
      findings_.warn(str_cat(file, ": ", names.size(),
                             " tensors outside the index belong to no parameter, such as ",
                             names[0], ": ignored"));
  }

  LoadPlan take() { return std::move(out_); }

 private:
  static bool is_ignored(std::string_view name, bool with_mtp) {
    if (name.starts_with("visual.")) return true;
    if (!with_mtp && name.starts_with("mtp.")) return true;
    // Scales of caches and activations: weights are all this engine takes from a file.
    return std::ranges::any_of(std::array{"rotary_emb.inv_freq", ".k_scale", ".v_scale",
                                          ".input_scale", ".input_global_scale"},
                               [&](const char* end) { return name.ends_with(end); });
  }

  bool find_single(MatrixPlan& plan) {
    const MatrixParameter& p = plan.parameter;
    const auto source = find_linear(
        checkpoint_, quant_, {.module = p.module, .n = p.n, .k = p.k, .float_only = p.float_only},
        claims_, findings_);
    if (source) plan.sources.push_back(*source);
    return source.has_value();
  }

  bool find_experts(MatrixPlan& plan) {
    const std::string& stem = plan.parameter.module;
    const bool fused = checkpoint_.find(stem + ".gate_up_proj") != nullptr ||
                       checkpoint_.find(stem + ".down_proj") != nullptr;
    if (!fused) return find_separate_experts(plan);
    for (const char* part : {".weight", ".qweight"}) {
      const std::string single = str_cat(stem, ".0.", plan.parameter.projection, part);
      if (const StoredTensor* tensor = checkpoint_.find(single)) {
        findings_.fault(checkpoint_.file_name(*tensor), tensor->info.name,
                        "experts are stored twice: fused and one by one");
        return false;
      }
    }
    return find_fused_experts(plan);
  }

  bool find_fused_experts(MatrixPlan& plan) {
    const MatrixParameter& p = plan.parameter;
    const bool down = p.projection == "down_proj", up = p.projection == "up_proj";
    // gate and up share a tensor; what is wrong with it is said once.
    Findings said_already;
    const StoredTensor* tensor = find_fused_tensor(
        checkpoint_, p.module + (down ? ".down_proj" : ".gate_up_proj"),
        {p.count, down ? p.n : 2 * p.n, p.k}, claims_, up ? said_already : findings_);
    if (tensor == nullptr) return false;
    for (int64_t e = 0; e < p.count; ++e)
      plan.sources.push_back(fused_slice(*tensor, e, up ? p.n : 0, p.n));
    return true;
  }

  bool find_separate_experts(MatrixPlan& plan) {
    const MatrixParameter& p = plan.parameter;
    for (int64_t e = 0; e < p.count; ++e) {
      const LinearRequest request{
          .module = str_cat(p.module, ".", e, ".", p.projection), .n = p.n, .k = p.k};
      auto source = find_linear(checkpoint_, quant_, request, claims_, findings_);
      if (source) plan.sources.push_back(std::move(*source));
    }
    if (static_cast<int64_t>(plan.sources.size()) != p.count) return false;
    const LinearSource& first = plan.sources[0];
    for (const LinearSource& other : plan.sources) {
      if (other.format == first.format && other.scale_dtype == first.scale_dtype) continue;
      const auto text = [](const LinearSource& s) {
        return s.scales == nullptr ? std::string(weight_format_name(s.format))
                                   : str_cat(weight_format_name(s.format), " with ",
                                             dtype_name(s.scale_dtype), " scales");
      };
      findings_.fault(checkpoint_.file_name(*other.values), other.values->info.name,
                      str_cat("is ", text(other), " where ", first.module, " is ", text(first),
                              ": the experts of a layer must share one format"),
                      ErrorCode::kUnsupported);
      return false;
    }
    return true;
  }

  const Checkpoint& checkpoint_;
  const QuantConfig& quant_;
  Findings& findings_;
  Claims claims_;
  LoadPlan out_;
};

bool is_float(WeightFormat format) {
  return format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
         format == WeightFormat::kBF16;
}

void choose_int8_head(const ModelConfig& config, ModelWeights& weights, LoadPlan& plan) {
  for (MatrixPlan& matrix : plan.matrices) {
    const Component component = matrix.parameter.component;
    if (component == Component::kHead && is_float(matrix.spec.format))
      matrix.spec.format = WeightFormat::kInt8Row;
    if (component == Component::kEmbedding && config.tied_embeddings)
      matrix.int8_head = &weights.head;
  }
}

}  // namespace

int64_t LoadPlan::file_bytes() const {
  int64_t bytes = 0;
  for (const MatrixPlan& plan : matrices)
    for (const LinearSource& source : plan.sources) bytes += source.file_bytes();
  for (const VectorPlan& plan : vectors) bytes += plan.tensor->info.bytes();
  return bytes;
}

Result<LoadPlan> plan_load(const Checkpoint& checkpoint, const ModelConfig& config, MtpUse mtp,
                           ModelWeights& weights, Findings& findings, LmHead head) {
  const Result<QuantConfig> quant = QuantConfig::parse(checkpoint.config());
  if (!quant) return quant.error().within(checkpoint.directory() + "/config.json");
  const bool has_mtp = std::ranges::any_of(
      checkpoint.tensors(), [](const StoredTensor& t) { return t.name.starts_with("mtp."); });
  bool with_mtp = has_mtp && mtp != MtpUse::kSkip;
  if (with_mtp && config.mtp_layers == 0) {
    findings.warn("mtp_num_hidden_layers is 0: the mtp.* tensors are ignored");
    with_mtp = false;
  }
  if (!with_mtp && mtp == MtpUse::kRequired)
    findings.fault("", "mtp", "speculation needs the MTP layer, and the checkpoint has none",
                   ErrorCode::kNotFound);

  Planner planner(checkpoint, *quant, findings);
  Parameters parameters = list_parameters(config, with_mtp, weights);
  for (MatrixParameter& parameter : parameters.matrices) planner.add(std::move(parameter));
  for (VectorParameter& parameter : parameters.vectors) planner.add(std::move(parameter));
  planner.check_hybrid(config.layers);
  planner.check_leftovers(with_mtp, config.tied_embeddings);
  if (findings.has_faults()) return findings.to_error(checkpoint.directory());
  LoadPlan plan = planner.take();
  plan.with_mtp = with_mtp;
  if (head == LmHead::kInt8) choose_int8_head(config, weights, plan);
  return plan;
}

}  // namespace pewter
