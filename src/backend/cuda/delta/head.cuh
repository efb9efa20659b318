// A decode step of one value head of one sequence, by a block of threads: convolution, gates, tape,
// rule and gated norm.
//
// What an earlier step left is worked off before this step's inputs are waited for: the state comes
// in, accepted tape rows are convolved and applied, the state they leave goes out. Then the new
// rows run on in registers. Value heads that share a key head each convolve its channels for
// themselves; the one of them that has read the old columns last writes the new ones.
#pragma once

#include "backend/cuda/common/bulk.cuh"
#include "backend/cuda/delta/rule.cuh"
#include "backend/cuda/linear/coded_rows.cuh"

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
};
// And where results arrive, the gates of the new rows.
struct ArrivingHeadMemory : HeadMemory {
  __nv_bfloat16 gate[kTapeRows][kColumns];
};

// The state of one head in shared memory, for blocks of threads of few registers: kKeys keys and
// kColumns columns. What is done with it, and in which order, is HeadState's; the code is
// the same for each half of the columns.
struct SharedHeadState {
  static constexpr bool kKeepsRow = true;      // run_row(…, false) leaves the state as it was
  static constexpr int kPitch = kColumns + 8;  // so that lanes that read at once hit other banks
  static constexpr int64_t kBytes = kKeys * kPitch * 4;
  float* s;
  float* memory;
  uint32_t barrier;

  // Complete after begin(). shared: kBytes, aligned to 16; sync(): a barrier of the threads.
  template <typename Sync>
  __device__ SharedHeadState(const DeltaArgs& a, int slot, int head, float* shared,
                             uint64_t* shared_barrier, const Sync& sync)
      : s(shared),
        memory(a.state +
               (static_cast<int64_t>(slot) * a.value_heads + head) * kKeys * int64_t{kColumns}),
        barrier(shared_address(shared_barrier)) {
    if (threadIdx.x == 0) {
      init_barrier<1>(barrier);
      publish_barriers();
    }
    sync();
    if (threadIdx.x == 0) expect_bytes(barrier, kKeys * kColumns * 4);
    // One warp alone takes microseconds to ask for every row; where many heads ask, more of them
    // together would keep the memory from the weights, which are wanted first.
    const int asking = a.value_heads > 48 ? 2 : 4, warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp != 0 || warp >= asking) return;
#pragma unroll 1
    for (int key = warp; key < kKeys; key += asking)
      copy_bulk_once(shared_address(s + key * kPitch), memory + key * kColumns, kColumns * 4,
                     barrier);
  }
  __device__ void begin() const { wait_barrier(barrier, 0); }

  __device__ void store() const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 4
    for (int key = static_cast<int>(threadIdx.x) / kWarp; key < kKeys; key += 8)
      *reinterpret_cast<float4*>(memory + key * kColumns + 4 * lane) =
          *reinterpret_cast<const float4*>(s + key * kPitch + 4 * lane);
  }

  // One row, as HeadState::run_row, by eight warps. keeps: whether the state is read again.
  __device__ void run_row(const float* q_row, const float* k_row, float* v, float decay,
                          float write, bool keeps) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, key = lane / 2;
    int column = 8 * (static_cast<int>(threadIdx.x) / kWarp) + 4 * (lane % 2);
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn, column += kColumns / 2) {
      float* const from = s + key * kPitch + column;
      float part[kKeySteps][4], predicted[4] = {}, o[4] = {};
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(from + 16 * i * kPitch);
        part[i][0] = four.x, part[i][1] = four.y, part[i][2] = four.z, part[i][3] = four.w;
      }
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) {
        const float k = k_row[16 * i + key];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          part[i][c] *= decay;
          predicted[c] = fmaf(part[i][c], k, predicted[c]);
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c)
        predicted[c] = write * (v[column + c] - HeadState<true>::key_sum(predicted[c]));
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) {
        const float k = k_row[16 * i + key], q = q_row[16 * i + key];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          part[i][c] = fmaf(k, predicted[c], part[i][c]);
          o[c] = fmaf(part[i][c], q, o[c]);
        }
        if (keeps)
          *reinterpret_cast<float4*>(from + 16 * i * kPitch) =
              make_float4(part[i][0], part[i][1], part[i][2], part[i][3]);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) o[c] = HeadState<true>::key_sum(o[c]);
      __syncwarp();  // the row's v has been read
      if (key == 0)
#pragma unroll
        for (int c = 0; c < 4; ++c) v[column + c] = o[c];
    }
  }
};

// Counts one more reader; by one thread, whose block has read a key head's old columns.
__device__ inline void count_reader(const DeltaArgs& a, int sequence, int key_head,
                                    HeadMemory& memory) {
  int32_t* const readers = a.readers + sequence * a.key_heads + key_head;
  __threadfence();
  memory.last_reader = atomicAdd(readers, 1) == a.sharers - 1;
  if (memory.last_reader) *readers = 0;
}

// row_memory: HeadRows::kFloats · row_capacity, which is as many as the tape or the step may have.
// load_state(slot): the head's state, on its way. wait(first): until the inputs may be asked for,
// which it returns: the rows from `first` on. readers: who counts the blocks of threads that have
// read a key head's old columns; count() is called behind a barrier, memory.last_reader is known
// behind known() and the next barrier. finish(): the head's rows have been written by these
// threads. sync(): a barrier of the threads.
template <bool kWhole, int kThreads, typename LoadState, typename Wait, typename Readers,
          typename Finish, typename Sync, typename Memory>
__device__ inline void decode_head(const DeltaArgs& a, int head, int sequence, int row_capacity,
                                   float* row_memory, Memory& memory, const LoadState& load_state,
                                   const Wait& wait, const Readers& readers, const Finish& finish,
                                   const Sync& sync) {
  constexpr int kWarps = kThreads / kWarp, kTogether = 4;
  constexpr int kShares = (HeadMemory::kChannels + kThreads - 1) / kThreads;  // of channels
  const HeadRows rows(row_memory, row_capacity);
  const int channels = a.channels();
  const int dk = kWhole ? kKeys : a.key_dim, dv = kWhole ? kColumns : a.value_dim;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  const Part part = part_of(a, sequence);
  const int key_head = head / a.sharers;
  __nv_bfloat16* const window = a.window + static_cast<int64_t>(part.slot) * 3 * channels;
  __nv_bfloat16* const tape = a.tape + static_cast<int64_t>(part.slot) * kTapeRows * channels;
  float* const gate_tape =
      a.gates + static_cast<int64_t>(part.slot) * kTapeRows * 2 * a.value_heads + head;

  if (!kWhole && thread >= dv && thread < kColumns)
    for (int i = 0; i < row_capacity; ++i) rows.v[i * kColumns + thread] = 0;
  if (thread < dv) memory.norm[thread] = a.norm[thread];
  int channel[kShares];  // of the thread's
  float4 taps[kShares];
  __nv_bfloat16 old[kShares][3];
  constexpr bool kArrive = decltype(wait(int64_t{0}))::kArrive;
  const auto ask_columns = [&] {
#pragma unroll
    for (int s = 0; s < kShares; ++s) {
      const int c = thread + s * kThreads;
      channel[s] = -1;
      if (c >= 2 * dk + dv) continue;
      channel[s] = HeadChannel(a, rows, head, key_head, c, dk, dv).channel;
      taps[s] = *reinterpret_cast<const float4*>(a.conv + 4 * channel[s]);
#pragma unroll
      for (int i = 0; i < 3; ++i) old[s][i] = window[i * channels + channel[s]];
    }
  };
  // Where results arrive, the memory is busy with weights: what is needed first is asked for first.
  if (kArrive) ask_columns();
  auto state = load_state(part.slot);
  if (!kArrive) ask_columns();
#pragma unroll
  for (int s = 0; s < kShares; ++s)
    if (channel[s] >= 0)
#pragma unroll
      for (int i = 0; i < 3; ++i) memory.history[i][thread + s * kThreads] = old[s][i];
  const int gate_row = kThreads - 1 - thread;  // threads with the least to do
  const float rate = -expf(a.a_log[head]), bias = a.dt_bias[head];

  // The accepted rows of the tape, then the new ones: the same code, so that it is in the
  // instruction cache when the inputs are there.
  decltype(wait(int64_t{0})) in;
  GatedNorm gated;
  // A state that the only new row leaves as it was is stored when that row is on its way.
  const bool stores_later = decltype(state)::kKeepsRow && part.rows == 1;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool is_new = turn == 1;
    const int count = is_new ? part.rows : part.accepted;
    float* const kept = gate_tape + 2 * gate_row * a.value_heads;
    Gates gates{};
    if (is_new)
      in = wait(part.first);
    else if (gate_row < count)
      gates = {kept[0], kept[a.value_heads]};
#pragma unroll 1
    for (int first = 0; first < count; first += kTogether) {
      uint64_t word[kShares][kTogether];
#pragma unroll
      for (int s = 0; s < kShares; ++s)
#pragma unroll
        for (int j = 0; j < kTogether; ++j)
          if (channel[s] >= 0 && first + j < count)
            word[s][j] = is_new ? in.ask(first + j, channel[s])
                                : __bfloat16_as_ushort(tape[(first + j) * channels + channel[s]]);
#pragma unroll
      for (int s = 0; s < kShares; ++s) {
        const int c = thread + s * kThreads;
        if (channel[s] < 0) continue;
        const HeadChannel at(a, rows, head, key_head, c, dk, dv);
        const bool keeps = is_new && (at.is_value || memory.last_reader);
        __nv_bfloat16 last[3];
#pragma unroll
        for (int i = 0; i < 3; ++i) last[i] = memory.history[i][c];
#pragma unroll 1
        for (int j = first; j < min(first + kTogether, count); ++j) {
          const __nv_bfloat16 value =
              is_new ? in.take(word[s][0], j, channel[s])
                     : __ushort_as_bfloat16(static_cast<unsigned short>(word[s][0]));
          at.place[j * at.pitch] = convolve(taps[s], last, value);
          if (keeps) tape[j * channels + channel[s]] = value;
          last[0] = last[1], last[1] = last[2], last[2] = value;
#pragma unroll
          for (int k = 0; k + 1 < kTogether; ++k) word[s][k] = word[s][k + 1];
        }
#pragma unroll
        for (int i = 0; i < 3; ++i) memory.history[i][c] = last[i];
      }
    }
    if (gate_row < count) {
      if (is_new) {
        const int column = channels + a.value_heads * dv + head;
        const uint64_t b = in.ask(gate_row, column),
                       decay = in.ask(gate_row, column + a.value_heads);
        gates = gates_of(in.take(b, gate_row, column),
                         in.take(decay, gate_row, column + a.value_heads), rate, bias);
        kept[0] = gates.decay;
        kept[a.value_heads] = gates.write;
      }
      rows.decay[gate_row] = expf(gates.decay);
      rows.write[gate_row] = gates.write;
    }
    sync();
    if (!is_new) readers.count(memory);
    // The gates are projected last. They are asked for now, and waited for when the rule has run.
    const int gates_here = kArrive && is_new ? count * dv : 0;
    const auto ask_gate = [&](int i) { return in.ask(i / dv, channels + head * dv + i % dv); };
    uint64_t gate_word = 0;
    if (thread < gates_here) gate_word = ask_gate(thread);
    if (!kArrive && is_new && warp < count) gated.load_gate(in, warp, channels + head * dv, dv);
#pragma unroll 1
    for (int i = kWarps - 1 - warp; i < 2 * count; i += kWarps) {  // others than load gates
      float* const vector = (i % 2 == 1 ? rows.k : rows.q) + i / 2 * kKeys;
      unit_vector(vector, i % 2 == 1, dk, vector);
    }
    sync();
    if (count > 0) state.begin();
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      state.run_row(rows.q + i * kKeys, rows.k + i * kKeys, rows.v + i * kColumns, rows.decay[i],
                    rows.write[i], !is_new || i + 1 < count);
    if constexpr (kArrive)
#pragma unroll 1
      for (int i = thread; i < gates_here; i += kThreads) {
        if (i != thread) gate_word = ask_gate(i);
        memory.gate[i / dv][i % dv] = in.take(gate_word, i / dv, channels + head * dv + i % dv);
      }
    if (!is_new) readers.known();
    if (!is_new && count > 0) {
      if (!stores_later) {
        sync();
        state.store();
      }
#pragma unroll
      for (int s = 0; s < kShares; ++s)
        if (const int c = thread + s * kThreads;
            channel[s] >= 0 && (c >= 2 * dk || memory.last_reader))
#pragma unroll
          for (int i = 0; i < 3; ++i) window[i * channels + channel[s]] = memory.history[i][c];
    }
    sync();
  }
  if (warp < part.rows) {
    const int64_t row = part.first + warp;
    __nv_bfloat16* const out = a.out + row * a.out_stride + head * dv;
    float* const o = rows.v + warp * kColumns;
    // The results stay in the row's place as well.
    auto* const kept = reinterpret_cast<__nv_bfloat16*>(o);
    if constexpr (kArrive) gated.read_gate(memory.gate[warp], dv);
    gated.write(o, memory.norm, a.epsilon, dv, out, kept);
    if (kWhole && a.codes != nullptr) {
      // The head is one group of the row; the second sixteen lanes repeat it.
      __syncwarp();
      const int at = head * kColumns + thread % 16 * 8, width = a.value_heads * kColumns;
      const uint4 eight = *reinterpret_cast<const uint4*>(kept + thread % 16 * 8);
      code_inputs(eight, at, thread % kWarp < 16, width, a.codes + row * row_pitch(width),
                  a.halves);
    }
  }
  finish();
  if (stores_later && part.accepted > 0) state.store();
}

}  // namespace pewter::cuda
