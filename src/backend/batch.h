// Batch: what one step works on. Rows are tokens; the rows of a sequence are adjacent and in order.
// The arrays live on the device at addresses that stay fixed between steps; ModelRunner fills them.
// A step is one prefill chunk, or a decode step with 1 … kMaxDecodeRows rows a sequence.
#pragma once

#include "backend/device.h"

namespace pewter {

enum class Phase : uint8_t { kPrefill, kDecode };

// Rows one sequence may have in a decode step: a token and 15 drafts. Also the length of a slot's
// tape.
inline constexpr int64_t kMaxDecodeRows = 16;

// Positions up to which a backend may have other kernels for decoding one sequence.
inline constexpr int64_t kShortContext = 8192;

struct Batch {
  Phase phase = Phase::kDecode;
  int64_t rows = 0, sequences = 0, logits_count = 0;
  int64_t page_table_stride = 0;  // entries a sequence has in page_table
  // Of steps with logits of one row: no sequence has more than kShortContext positions, these rows
  // included. Of others never, for which no backend has kernels of their own.
  bool is_short = false;

  // [rows]; -1 - i: the token of choice i (EmbedArgs::chosen), which the host need not know yet.
  const int32_t* tokens = nullptr;
  const int32_t* embedding_index =
      nullptr;            // [rows] row of `embeddings` to take instead of the token's, or -1
  TensorView embeddings;  // [given, hidden] f32, undefined when none are given
  const int32_t* hidden_rows = nullptr;     // [rows] of an MTP step: where each one's hidden is
  const int32_t* positions = nullptr;       // [rows, 3] time, height, width for RoPE
  const int32_t* position_delta = nullptr;  // [sequences] added to every position of a sequence
  const int32_t* row_sequence = nullptr;    // [rows] index of the row's sequence in this batch
  const int32_t* row_begin = nullptr;       // [sequences + 1] first row of each sequence
  const int32_t* context_length = nullptr;  // [sequences] committed positions before this step
  const int32_t* slot = nullptr;            // [sequences] slot of recurrent state
  const int32_t* accepted =
      nullptr;  // [sequences] rows of the slot's tape to apply before this step
  const int32_t* page_table =
      nullptr;  // [sequences, page_table_stride] physical page of each logical one
  const int32_t* logits_rows = nullptr;  // [logits_count] rows whose logits are wanted
};

// One layer's share of the KV cache. A page of a plane is [kv_heads, kPageTokens, head_dim] in its
// format.
struct KvLayer {
  KvFormat key_format = KvFormat::kF32, value_format = KvFormat::kF32;
  std::byte* keys = nullptr;    // [pages] of key_page_bytes
  std::byte* values = nullptr;  // [pages] of value_page_bytes
  int64_t key_page_bytes = 0, value_page_bytes = 0;
  int64_t kv_heads = 0, head_dim = 0;
};

// One Gated DeltaNet layer's recurrent state. A slot holds the committed state and window, and the
// *tape*: the inputs of the last decode step's rows. The next step applies the accepted ones in
// order before its own rows, with the very arithmetic they were computed with, so that how rows
// were grouped leaves no trace.
struct RecurrentLayer {
  TensorView state;   // [slots, value_heads, key_dim, value_dim] f32
  TensorView window;  // [slots, 3, channels] activation dtype: the last three columns before the
                      // convolution
  TensorView
      tape;  // [slots, kMaxDecodeRows, channels] activation dtype: columns before the convolution
  TensorView gates;  // [slots, kMaxDecodeRows, 2, value_heads] f32: decay g and write strength β
};

}  // namespace pewter
