// How kernels of net.cuh share out a GPU.

#include "backend/cuda/linear/net_one.cuh"

namespace pewter::cuda {
namespace {

constexpr int kNormedRows = 1;

int64_t net_row_bytes(const NetProducts& net) {
  return int64_t{net.in.rows} * std::max(row_pitch(padded_inputs(net.in.k)),
                                         shares_out(net) ? row_pitch(padded_inputs(net.out.k)) : 0);
}

// What of the output projection one row's weights' memory has room for at once: whole tiles, two if
// it can be or if some block of threads has more than one; or else pieces, of int4 whole quads.
void plan_out(const TileStack& w, NetPlan& plan) {
  const int room = plan.stage_bytes * plan.stage_count, tile = w.blocks * w.block_bytes;
  const bool single = w.tiles <= plan.streams && tile <= room;
  plan.out_stages = single && 2 * tile > room ? 1 : kOutStages;
  const int eights = room / plan.out_stages / (kStreamWarps * w.block_bytes);
  const bool by_quads = is_coded(w.format) && eights >= kQuad && kStreamWarps * eights < w.blocks;
  plan.out_piece = std::min(w.blocks, kStreamWarps * (by_quads ? eights / kQuad * kQuad : eights));
  plan.out_stage_bytes = plan.out_piece * w.block_bytes;
}

}  // namespace

bool streams_one(const NetProducts& net) { return net.in.rows == 1 && shares_out(net); }

bool shares_out(const NetProducts& net) {
  return int64_t{net.in.rows} * row_pitch(padded_inputs(net.out.k)) <= kMaxShared / 2;
}

NetLaunch plan_net(const Gpu& gpu, const NetProducts& net, int mixers, int64_t mixer_bytes,
                   bool one) {
  NetLaunch l;
  NetPlan& plan = l.plan;
  const int columns = net.in.rows <= 4 ? 4 : 8;
  plan.numbered = one;
  plan.row_bytes = static_cast<int>(net_row_bytes(net));
  const int64_t sum_bytes = one ? kRowSumsBytes : 2 * kStreamWarps * 16 * columns * int64_t{4};
  const int64_t fixed = plan.row_bytes + sum_bytes;
  const int64_t room = static_cast<int64_t>(kMostSharedBytes) - kOwnBytes - fixed;
  // Stages that hold a tile of the projections each, or else the most of them: eight blocks of
  // every matrix at least.
  const TileStack& w = net.in.w[net.in.stacks - 1];
  int least = kStreamWarps * net.out.w[0].block_bytes;
  for (int i = 0; i < net.in.stacks; ++i)
    least = std::max(least, kStreamWarps * net.in.w[i].block_bytes);
  const int tile = w.blocks * w.block_bytes;
  int64_t most = 0;
  for (const int bytes :
       {tile, 32 * (kMostBlockBytes / 2), 24 * (kMostBlockBytes / 2), 16 * (kMostBlockBytes / 2)}) {
    const int count = static_cast<int>(std::min<int64_t>(room / bytes, kMostFlowStages));
    const int64_t held = int64_t{count} * piece_blocks(w, bytes) * w.block_bytes;
    if (bytes < least || count < kLeastStages || held <= most) continue;
    most = held, plan.stage_bytes = bytes, plan.stage_count = count;
    if (bytes == tile && count > kLeastStages) break;
  }
  // Tiles of int4 that a stage has whole; all projections are as wide.
  l.held = is_coded(w.format) ? held_blocks(w.blocks) : 0;
  for (int i = 0; i <= net.in.stacks && plan.stage_bytes > 0; ++i) {
    const TileStack& m = i < net.in.stacks ? net.in.w[i] : net.out.w[0];
    plan.pieces[i] = piece_blocks(m, plan.stage_bytes);
    if (i < net.in.stacks && is_coded(m.format) && plan.pieces[i] < m.blocks) l.held = 0;
  }
  l.bytes = std::max<int64_t>(fixed + int64_t{plan.stage_count} * plan.stage_bytes, mixer_bytes);
  l.grid = gpu.multiprocessors * kResidentBlocks;
  plan.mixers = mixers;
  plan.streams = l.grid - plan.mixers;
  const Split split = split_for(net.in, plan.streams);
  plan.plain_shares = split.plain_shares;
  plan.plain_units = split.plain_units;
  plan.units = split.units;
  const int coded_shares = plan.streams - plan.plain_shares;
  plan.fixed = std::clamp((split.units - split.plain_units) / coded_shares - 1, 1, 3);
  if (plan.stage_count > 0) plan_out(net.out.w[0], plan);
  return l;
}

bool can_stream_net(const Gpu& gpu, const NetProducts& net) {
  const int64_t taken = static_cast<int64_t>(kMostSharedBytes) + kOwnShared;
  const auto common = [](const StreamArgs& args) {
    return std::all_of(args.w, args.w + args.stacks,
                       [](const TileStack& w) { return is_common(w); });
  };
  return gpu.has_bulk_copies && common(net.in) && common(net.out) &&
         gpu.shared_bytes >= kResidentBlocks * taken && net.in.rows <= kMostNetRows &&
         net.in.k % 128 == 0 && net.out.k % 128 == 0 && net.in.x_stride % 8 == 0 &&
         net.out.x_stride % 8 == 0 && net.in.k <= kWidestQuadRow;
}

bool net_fits(const NetLaunch& l, const void* kernel) {
  if (l.plan.stage_count == 0 || l.bytes + kOwnBytes > static_cast<int64_t>(kMostSharedBytes))
    return false;
  set_kernel_limits(kernel, static_cast<size_t>(l.bytes));
  int resident = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kFlowThreads,
                                                           static_cast<size_t>(l.bytes)));
  return resident >= kResidentBlocks;
}

bool can_norm(const NetProducts& net, int64_t x_stride) {
  return net.in.rows <= kNormedRows && net.in.k <= kFusedNormWidth && net.in.k % 128 == 0 &&
         is_quad_row(net.in.k, x_stride, 4);
}

}  // namespace pewter::cuda
