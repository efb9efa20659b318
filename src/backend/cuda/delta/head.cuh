// A decode step of one value head of one sequence, by a block of threads: convolution, gates, tape
// and rule; the gated norm is behind it (decode.cu, arriving_head.cuh).
//
// What an earlier step left is worked off before this step's inputs are waited for: the state comes
// in, accepted tape rows are convolved and applied. Then the new rows run on from there. Value
// heads that share a key head each convolve its channels for themselves; the one of them that has
// read the old columns last writes the new ones.
#pragma once

#include "backend/cuda/delta/rule.cuh"

namespace pewter::cuda {

// Rows of one head after the convolution: tape rows, then new ones.
struct HeadRows {
  float *q, *k, *v;      // [rows, kKeys], …, [rows, kColumns]
  float *decay, *write;  // [rows]

  static constexpr int64_t kFloats = 2 * kKeys + kColumns + 4;  // of a row, in whole float4
  __device__ HeadRows(float* memory, int rows)
      : q(memory),
        k(q + rows * kKeys),
        v(k + rows * kKeys),
        decay(v + rows * kColumns),
        write(decay + rows) {}
};

// One of a head's channels: of q, k, then v.
struct HeadChannel {
  int channel;  // among all of the layer
  bool is_value;
  float* place;  // of its first row
  int pitch;     // from there to the next
  __device__ HeadChannel(const DeltaArgs& a, const HeadRows& rows, int head, int key_head, int c,
                         int dk, int dv)
      : channel(c < dk       ? key_head * dk + c
                : c < 2 * dk ? (a.key_heads + key_head) * dk + c - dk
                             : 2 * a.key_heads * dk + head * dv + c - 2 * dk),
        is_value(c >= 2 * dk),
        place(c < dk       ? rows.q + c
              : c < 2 * dk ? rows.k + c - dk
                           : rows.v + c - 2 * dk),
        pitch(is_value ? kColumns : kKeys) {}
};

// What a block of threads shares besides the rows.
struct HeadMemory {
  static constexpr int kChannels = 2 * kKeys + kColumns;
  float norm[kColumns];
  __nv_bfloat16 history[3][kChannels];  // the last columns
  bool last_reader;
  int shared_key_head;

  // Read anew each time, as thread_again().
  __device__ int key_head() const { return *const_cast<const volatile int*>(&shared_key_head); }
};
// Counts one more reader; by one thread, whose block has read a key head's old columns.
__device__ inline void count_reader(const DeltaArgs& a, int sequence, int key_head,
                                    HeadMemory& memory) {
  int32_t* const readers = a.readers + sequence * a.key_heads + key_head;
  __threadfence();
  memory.last_reader = atomicAdd(readers, 1) == a.sharers - 1;
  if (memory.last_reader) *readers = 0;
}

// The thread's number, read anew each time: so that what follows from it is computed again where
// registers are few. What is spilled instead comes from far when it is needed.
__device__ inline int thread_again() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  __builtin_assume(x >= 0 && x < 1024);
  return x;
}

// row_memory: HeadRows::kFloats · row_capacity, which is as many as the tape or the step may have.
// load_state(slot): the head's state, on its way. wait(): until the inputs may be asked for, which
// it returns. convolved(inputs): the new rows have been, and the gates of their outputs may be
// asked for. The new rows' outputs are in HeadRows::v behind this.
//
// beside: what others do meanwhile. Its count() is called when this block of threads has read a key
// head's old columns, behind a barrier; memory.last_reader is known behind known() and the next
// barrier. sync(): a barrier of the threads; end(): the one behind the new rows.
template <bool kWhole, int kThreads, typename LoadState, typename Wait, typename Convolved,
          typename Beside, typename Sync>
__device__ inline void run_head(const DeltaArgs& a, int head, const Part& part, int row_capacity,
                                float* row_memory, HeadMemory& memory, const LoadState& load_state,
                                const Wait& wait, const Convolved& convolved, const Beside& beside,
                                const Sync& sync) {
  using Rows = decltype(wait());
  constexpr int kTogether = 4;
  constexpr int kShares = (HeadMemory::kChannels + kThreads - 1) / kThreads;  // of channels
  const HeadRows rows(row_memory, row_capacity);
  const int channels = a.channels();
  const int dk = kWhole ? kKeys : a.key_dim, dv = kWhole ? kColumns : a.value_dim;
  const auto window_of = [&](int slot) {
    return a.window + static_cast<int64_t>(slot) * 3 * channels;
  };
  // A thread's channels; who has fewer than others reads the last one again, and leaves it alone.
  const auto has_share = [&](int thread, int s) {
    return (kWhole && (s + 1) * kThreads <= HeadMemory::kChannels) ||
           thread + s * kThreads < 2 * dk + dv;
  };
  const auto share = [&](int thread, int s) {
    return HeadChannel(a, rows, head, memory.key_head(),
                       min(thread + s * kThreads, 2 * dk + dv - 1), dk, dv);
  };

  // Where results arrive, the memory is busy with weights: what is needed first is asked for first.
  const int own = static_cast<int>(threadIdx.x);
  memory.shared_key_head = head / a.sharers;  // by each thread for itself, until the first barrier
  __nv_bfloat16 old[kShares][3];
  const auto ask_columns = [&] {
#pragma unroll
    for (int s = 0; s < kShares; ++s)
#pragma unroll
      for (int i = 0; i < 3; ++i)
        old[s][i] = window_of(part.slot)[i * channels + share(own, s).channel];
  };
  if (!kWhole && own >= dv && own < kColumns)
    for (int i = 0; i < row_capacity; ++i) rows.v[i * kColumns + own] = 0;
  if (own < dv) memory.norm[own] = a.norm[own];
  if (Rows::kArrive) ask_columns();
  auto state = load_state(part.slot);
  using State = decltype(state);
  if (!Rows::kArrive) ask_columns();
#pragma unroll
  for (int s = 0; s < kShares; ++s)
    if (has_share(own, s))
#pragma unroll
      for (int i = 0; i < 3; ++i) memory.history[i][own + s * kThreads] = old[s][i];

  // The accepted rows of the tape, then the new ones: the same code, so that it is in the
  // instruction cache when the inputs are there.
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool is_new = turn == 1;
    const int count = is_new ? part.rows : part.accepted;
    const int thread = thread_again(), slot = part.slot;
    float4 taps[kShares];
#pragma unroll
    for (int s = 0; s < kShares; ++s)
      taps[s] = *reinterpret_cast<const float4*>(a.conv + 4 * share(thread, s).channel);
    Rows in{};
    if (is_new) in = wait();
    const int gate_row = kThreads - 1 - thread;  // threads with the least to do
    if (gate_row < count) {
      float* const kept =
          a.gates + (static_cast<int64_t>(slot) * kTapeRows + gate_row) * 2 * a.value_heads + head;
      Gates gates;
      if (is_new) {
        // Projected first, so that their exponentials are done when the other inputs come.
        const int column = channels + a.value_heads * dv + head;
        const uint64_t b = in.ask(gate_row, column),
                       decay = in.ask(gate_row, column + a.value_heads);
        const float rate = -expf(a.a_log[head]), bias = a.dt_bias[head];
        gates = gates_of(in.take(b, gate_row, column),
                         in.take(decay, gate_row, column + a.value_heads), rate, bias);
        kept[0] = gates.decay;
        kept[a.value_heads] = gates.write;
      } else {
        gates = {kept[0], kept[a.value_heads]};
      }
      rows.decay[gate_row] = expf(gates.decay);
      rows.write[gate_row] = gates.write;
    }
    __nv_bfloat16* const tape = a.tape + static_cast<int64_t>(slot) * kTapeRows * channels;
#pragma unroll 1
    for (int first = 0; first < count; first += kTogether) {
      uint64_t word[kShares][kTogether] = {};
      __nv_bfloat16 last[kShares][3];
      const int left = min(count - first, kTogether), thread = thread_again();
      int channel_of[kShares];
#pragma unroll
      for (int s = 0; s < kShares; ++s) {
        const int channel = channel_of[s] = share(thread, s).channel;
#pragma unroll
        for (int i = 0; i < 3; ++i)
          last[s][i] = has_share(thread, s) ? memory.history[i][thread + s * kThreads]
                                            : __float2bfloat16(0.0f);
        if (!is_new) {
          const __nv_bfloat16* const from = tape + first * channels + channel;
#pragma unroll
          for (int j = 0; j < kTogether; ++j)
            if (j < left) word[s][j] = __bfloat16_as_ushort(from[j * channels]);
        } else {
#pragma unroll
          for (int j = 0; j < kTogether; ++j)
            if (j < left) word[s][j] = in.first_look(first + j, channel);
        }
      }
      // What is missing is asked for all at once, however often.
      bool missing = Rows::kArrive && is_new;
      while (missing) {
        missing = false;
#pragma unroll
        for (int s = 0; s < kShares; ++s)
#pragma unroll
          for (int j = 0; j < kTogether; ++j)
            if (j < left && !in.has(word[s][j])) {
              word[s][j] = in.ask(first + j, channel_of[s]);
              missing = true;
            }
      }
#pragma unroll 1
      for (int j = first; j < first + left; ++j) {
        const int thread = thread_again();
        float mixed[kShares];
#pragma unroll
        for (int s = 0; s < kShares; ++s) {
          const __nv_bfloat16 value =
              is_new ? in.value(word[s][0], thread)  // whose parity is its channels'
                     : __ushort_as_bfloat16(static_cast<unsigned short>(word[s][0]));
          mixed[s] = convolve(taps[s], last[s], value);
          if (!Rows::kArrive && is_new && has_share(thread, s) &&
              (share(thread, s).is_value || memory.last_reader))
            tape[j * channels + channel_of[s]] = value;
          last[s][0] = last[s][1], last[s][1] = last[s][2], last[s][2] = value;
#pragma unroll
          for (int k = 0; k + 1 < kTogether; ++k) word[s][k] = word[s][k + 1];
        }
#pragma unroll
        for (int s = 0; s < kShares; ++s)  // or the second waits until the first is written
          asm volatile("" : "+f"(mixed[s]));
#pragma unroll
        for (int s = 0; s < kShares; ++s)
          if (has_share(thread, s)) {
            const HeadChannel at = share(thread, s);
            at.place[j * at.pitch] = mixed[s];
          }
      }
      if (is_new && first + kTogether >= count) break;  // nobody looks back
      const int writer = thread_again();
#pragma unroll
      for (int s = 0; s < kShares; ++s)
        if (has_share(writer, s))
#pragma unroll
          for (int i = 0; i < 3; ++i) memory.history[i][writer + s * kThreads] = last[s][i];
    }
    sync();
    if (!is_new) beside.count(memory);
    if (is_new) convolved(in);
    if constexpr (!State::kMakesUnits) {
      constexpr int kWarps = kThreads / kWarp;
#pragma unroll 1
      for (int i = kWarps - 1 - thread / kWarp; i < 2 * count; i += kWarps) {  // the least to do
        float* const vector = (i % 2 == 1 ? rows.k : rows.q) + i / 2 * kKeys;
        unit_vector(vector, i % 2 == 1, dk, vector);
      }
      sync();
    }
    if (!is_new) state.begin();
    state.resume();
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      state.run_row(rows.q + i * kKeys, rows.k + i * kKeys, rows.v + i * kColumns, rows.decay[i],
                    rows.write[i]);
    if (is_new) break;
    if (count > 0) state.keep();
    beside.known();
    if (count > 0) {
      const int thread = thread_again();
#pragma unroll
      for (int s = 0; s < kShares; ++s)
        if (has_share(thread, s) && (share(thread, s).is_value || memory.last_reader))
#pragma unroll
          for (int i = 0; i < 3; ++i)
            window_of(part.slot)[i * channels + share(thread, s).channel] =
                memory.history[i][thread + s * kThreads];
    }
    sync();
  }
  beside.end();
}

}  // namespace pewter::cuda
