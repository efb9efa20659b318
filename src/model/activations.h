// Activations: the named scratch tensors of a forward pass, sized once for the largest step. Their
// dtype ("act") belongs here and not to an op: f32 in the reference path, bf16 in the fast one.
// Tensors that never live at the same time share memory: a layer is either delta or attention,
// either MoE or dense.
#pragma once

#include <vector>

#include "backend/device.h"
#include "model/model_config.h"

namespace pewter {

struct Activations {
  TensorView residual;           // [m, H] f32
  TensorView partial;            // [m, H] f32, a layer's sum before it joins the residual
  TensorView delta_in;           // [m, delta_in_width] act
  TensorView delta_out;          // [m, Hv·dv] act
  TensorView attention_in;       // [m, attention_in_width] act
  TensorView attention_q;        // [m, Nq·D] act
  TensorView attention_out;      // [m, Nq·D] act
  TensorView normed;             // [m, H] act
  TensorView expert;             // [m, top_k] i32
  TensorView expert_weight;      // [m, top_k] f32
  TensorView shared_weight;      // [m] f32
  TensorView expert_hidden;      // [m, top_k, I] act
  TensorView shared_hidden;      // [m, Is] act
  TensorView mlp_hidden;         // [m, I] act
  TensorView hidden;             // [m, H] act, after the final norm, of every row
  TensorView mtp_embedding;      // [m, H] f32
  TensorView mtp_hidden;         // [m, H] act, the target's hidden an MTP step starts from
  TensorView logits;             // [logits rows, V] f32
  std::vector<TensorView> taps;  // [m, H] f32, the residual after each tapped layer

  // The same tensors cut to their first rows.
  void narrow(int64_t rows, int64_t logits_rows, Activations& to) const;
};

// Activations and the memory they lie in.
struct ActivationStore {
  Activations all;
  std::vector<Buffer> buffers;
  int64_t bytes = 0;

  struct Sizes {
    int64_t rows = 0, logits_rows = 0, taps = 0;
  };
  // Bytes make() will take.
  static int64_t bytes_of(const ModelConfig& config, DType activation, Sizes sizes);
  static Result<ActivationStore> make(Device& device, const ModelConfig& config, DType activation,
                                      Sizes sizes);

 private:
  // Without a device only the bytes are counted.
  static Result<ActivationStore> lay_out(Device* device, const ModelConfig& config,
                                         DType activation, Sizes sizes);
};

}  // namespace pewter
