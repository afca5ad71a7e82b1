// SwiGLU on its way out of the matmul before it, and back on its way into the one behind it, on Hopper. Alone SwiGLU reads and writes
// 3 numbers an element forward and 5 backward while the tensor cores stand still; here those copies run beside the next tile's products.
//
// A cluster is two blocks that work on neighboring rows and the same columns: each reads half of the columns' factor for both. In a
// block one thread asks for tiles, stages ahead; two warpgroups take output tiles in turn, so that one multiplies while the other
// finishes. An adapter's thin product is a few more steps of the same sum, over its own two factors.
#include <algorithm>

#include "rank/kernels/cuda/hopper/swiglu_tiles.cuh"
#include "rank/kernels/cuda/hopper/tile_map.h"
#include "rank/kernels/cuda/swiglu.cuh"

namespace lockstep::kernels::cuda {

namespace {

// Asks for every tile of the factors, as long as stages are free. Of the right one each block reads its share for both: forward gate's
// columns or up's, backward some rows of every box.
template <typename L>
__device__ void produce(const Maps& maps, const Sizes& sizes, std::uint32_t shared, const Deal<L>& deal) {
  const Barriers<L> barriers{shared};
  const int block = int(block_in_cluster());
  constexpr std::uint16_t both = 0b11;
  int stage = 0, parity = 1;
  const auto ask = [&](const CUtensorMap& left, const CUtensorMap& right, int at, int row, int column, int before) {
    wait(barriers.empty(stage), parity);
    const std::uint32_t to = shared + stage * kStageBytes, barrier = barriers.full(stage);
    expect_bytes(barrier, kStageBytes);
    load_tile(left, at, row, to, barrier);
    if constexpr (L::kBackward) {
      constexpr int rows = kStep / kBlocks;
#pragma unroll
      for (int box = 0; box < kColumns / kBox; ++box)
        load_tile_for(both, right, column + box * kBox, at + block * rows, to + kLeftBytes + (box * kStep + block * rows) * kBox * 2,
                      barrier);
    } else {
      load_tile_for(both, right, at - before, column, to + kLeftBytes + block * kPart * kStep * 2, barrier);
    }
    if (++stage == L::kStages) stage = 0, parity ^= 1;
  };
  int turn = 0;
  for (int index = deal.tile(turn); deal.is_tile(index); index = deal.tile(++turn)) {
    deal.ask(turn + 1);
    const Tile tile = tile_of(index, sizes);
    const int row = (tile.row * kBlocks + block) * kRows, column = tile.column * (L::kBackward ? kColumns : kPart);
    for (int step = 0; step < sizes.steps; ++step) ask(maps.left, maps.right[block], step * kStep, row, column, 0);
    // Up's share of the low-rank product stands behind gate's; what lies before its factor reads as 0.
    for (int step = 0; step < sizes.low_steps; ++step)
      ask(maps.low_left, maps.low_right[block], step * kStep, row, column, block * sizes.rank);
  }
  deal.end(turn + 1);  // the other worker looks there
}

// One worker's products of the turn-th tile. A barrier tells its last phase from the one before and no more, so a worker looks at
// stages only once the other has seen all of its own.
template <typename L>
__device__ __forceinline__ void multiply(float (&sum)[2][kSums], std::uint32_t shared, int turn, int steps) {
  const Barriers<L> barriers{shared};
  const int thread = int(threadIdx.x) % kGroupThreads, worker = turn % kWorkers, other = 1 - worker;
  const auto release = [&](int stage) {
    if (thread < kBlocks) arrive_at(barriers.empty(stage), std::uint32_t(thread));
  };
  wait(barriers.turn(worker), (turn / kWorkers + other) & 1);
  const int position = turn * steps;
  int stage = position % L::kStages, parity = position / L::kStages & 1, last = 0;
  for (int step = 0; step < steps; ++step) {
    wait(barriers.full(stage), parity);
    const std::uint32_t left = shared + stage * kStageBytes, right = left + kLeftBytes;
    begin_products();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      const std::uint64_t factor = L::kBackward ? down_rows(right + k * 16 * kBox * 2, kStep * kBox * 2) : along_rows(right + k * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        multiply_64x192<L::kBackward>(sum[half], along_rows(left + half * kLeftBytes / 2 + k * 32), factor, step + k > 0);
    }
    commit_products();
    if (step > 0) {
      wait_for_products<1>();
      release(last);
    }
    last = stage;
    if (++stage == L::kStages) stage = 0, parity ^= 1;
  }
  if (thread % 32 == 0) arrive(barriers.turn(other));
  wait_for_products<0>();
  release(last);
}

__device__ void finish_forward(const Outputs& to, const float (&sum)[2][kSums], int row, int column) {
  const auto word = [&](int half, int eighth, int lower) {
    return two(sum[half][eighth * 4 + lower * 2], sum[half][eighth * 4 + lower * 2 + 1]);
  };
  const auto product = [](std::uint32_t g, std::uint32_t u) {  // of what backward will read
    return two(swiglu<Number>(low_half(g), low_half(u)), swiglu<Number>(high_half(g), high_half(u)));
  };
  const Places gate(to.gate, row, column), up(to.up, row, column), out(to.out, row, column);
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower)
#pragma unroll
      for (int eighth = 0; eighth < kPart / 8; eighth += 2) {
        const std::uint32_t g0 = word(half, eighth, lower), g1 = word(half, eighth + 1, lower);
        const std::uint32_t u0 = word(half, kPart / 8 + eighth, lower), u1 = word(half, kPart / 8 + eighth + 1, lower);
        const int y = half * 64 + lower * 8, x = eighth * 8;
        gate.write(y, x, g0, g1);
        up.write(y, x, u0, u1);
        out.write(y, x, product(g0, u0), product(g1, u1));
      }
}

// gate and up of 64 columns come into the worker's two buffers, become their gradients there and go back.
struct Strips {
  const Maps& maps;
  std::uint32_t gate, up, ready;
  int row, column, parity;

  __device__ void ask(int strip) const {
    wait_for_stores_to_read();
    expect_bytes(ready, 2 * kOutBytes);
    load_tile(maps.gate, column + strip * kBox, row, gate, ready);
    load_tile(maps.up, column + strip * kBox, row, up, ready);
  }
};

// The products of 64 columns become gradients of gate and up, and where it is wanted SwiGLU's output. Two eighths of 16 rows at a time:
// all of them are read before one is written.
template <Pass kPass>
__device__ __forceinline__ void differentiate(const Strips& at, const Places& again, const float (&sum)[2][kSums], int strip) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int eighth = 0; eighth < 8; eighth += 2) {
      std::uint32_t g[4], u[4], out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t offset = place({half, eighth + i % 2, i / 2});
        g[i] = get(at.gate + offset);
        u[i] = get(at.up + offset);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* dout = &sum[half][(strip * 8 + eighth + i % 2) * 4 + i / 2 * 2];
        float g0 = low_half(g[i]), g1 = high_half(g[i]), u0 = low_half(u[i]), u1 = high_half(u[i]);
        const float out0 = differentiate_swiglu<Number>(g0, u0, dout[0]), out1 = differentiate_swiglu<Number>(g1, u1, dout[1]);
        const std::uint32_t offset = place({half, eighth + i % 2, i / 2});
        put(at.gate + offset, two(g0, g1));
        put(at.up + offset, two(u0, u1));
        out[i] = two(out0, out1);
      }
      if constexpr (kPass == Pass::backward_and_again)
#pragma unroll
        for (int lower = 0; lower < 2; ++lower)
          again.write(half * 64 + lower * 8, strip * kBox + eighth * 8, out[lower * 2], out[lower * 2 + 1]);
    }
}

template <Pass kPass>
__device__ void finish_backward(Strips& at, const Output& out, const float (&sum)[2][kSums], int name, bool leader) {
  const Places again(out, at.row, at.column);
#pragma unroll
  for (int strip = 0; strip < kColumns / kBox; ++strip) {
    if (strip > 0 && leader) at.ask(strip);
    wait(at.ready, at.parity);
    at.parity ^= 1;
    differentiate<kPass>(at, again, sum, strip);
    publish_to_copies();
    group_sync(name);
    if (leader) {
      store_tile(at.maps.gate, at.column + strip * kBox, at.row, at.gate);
      store_tile(at.maps.up, at.column + strip * kBox, at.row, at.up);
      commit_stores();
    }
  }
}

template <Pass kPass>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    swiglu_matmul(const __grid_constant__ Maps maps, const Outputs outputs, const Sizes sizes, int* next_tile) {
  using L = Layout<kPass>;
  extern __shared__ unsigned char memory[];
  const std::uint32_t shared = (shared_address(memory) + kAlignment - 1) / kAlignment * kAlignment;
  const Barriers<L> barriers{shared};
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      init(barriers.full(i), 1);
      init(barriers.empty(i), kBlocks);
    }
    for (int i = 0; i < kWorkers; ++i) {
      init(barriers.turn(i), kGroupThreads / 32);
      init(barriers.ready(i), 1);
    }
    for (int i = 0; i < L::kTurns; ++i) init(barriers.dealt(i), 1);
    publish_barriers();
  }
  __syncthreads();
  cluster_sync();

  const int group = int(threadIdx.x) / kGroupThreads;
  const Deal<L> deal(shared, sizes.row_tiles * sizes.column_tiles, next_tile);
  if (group == kWorkers) {
    give_registers<24>();  // what this warpgroup gives up, the other two take
    if (threadIdx.x % kGroupThreads == 0) produce<L>(maps, sizes, shared, deal);
  } else {
    take_registers<240>();
    const bool leader = threadIdx.x % kGroupThreads == 0;
    const int name = 1 + group, steps = sizes.steps + sizes.low_steps;
    const std::uint32_t buffer = shared + L::kOut + group * L::kOutBuffers * kOutBytes;
    Strips strips{maps, buffer, buffer + kOutBytes, barriers.ready(group), 0, 0, 0};
    float sum[2][kSums];
    for (int turn = group;; turn += kWorkers) {
      const int index = deal.tile(turn);
      if (!deal.is_tile(index)) break;
      const Tile tile = tile_of(index, sizes);
      const int row = (tile.row * kBlocks + int(block_in_cluster())) * kRows;
      if constexpr (L::kBackward) {
        strips.row = row;
        strips.column = tile.column * kColumns;
        if (leader) strips.ask(0);
        multiply<L>(sum, shared, turn, steps);
        finish_backward<kPass>(strips, outputs.out, sum, name, leader);
      } else {
        multiply<L>(sum, shared, turn, steps);
        finish_forward(outputs, sum, row, tile.column * kPart);
      }
    }
    if (leader) wait_for_stores();
  }
  cluster_sync();  // the other block still reads and signals here
}

// ---- the host's side ----

struct Extent {
  std::int64_t rows, width, inner, low, rank;  // low: what an adapter's product sums over
};

template <Pass kPass>
void launch(const Maps& maps, const Outputs& outputs, const Extent& a, int* next_tile, Stream stream) {
  using L = Layout<kPass>;
  constexpr int bytes = L::kBytes + kAlignment;
  const Sizes sizes{.row_tiles = int(ceil_div(a.rows, kBlocks * kRows)),
                    .column_tiles = int(ceil_div(a.width, L::kBackward ? kColumns : kPart)),
                    .steps = int(ceil_div(a.inner, kStep)),
                    .low_steps = int(ceil_div(a.low, kStep)),
                    .rank = int(a.rank)};
  const auto kernel = swiglu_matmul<kPass>;
  if (const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes); error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: SwiGLU with its matmul: ") + cudaGetErrorString(error));
  const int blocks = std::min(processors() / kBlocks, sizes.row_tiles * sizes.column_tiles) * kBlocks;
  kernel<<<blocks, kThreads, bytes, native(stream)>>>(maps, outputs, sizes, next_tile);
  launched("SwiGLU with its matmul");
}

}  // namespace

void gate_up_swiglu(const GateUpSwiglu& a, Stream stream) {
  if (a.rows == 0) return;
  const auto halves = [&](CUtensorMap(&maps)[2], const void* weight, std::int64_t inner) {  // gate's rows, then up's
    maps[0] = tile_map({weight, a.width, inner, inner}, kPart);
    maps[1] = tile_map({static_cast<const Number*>(weight) + a.width * inner, a.width, inner, inner}, kPart);
  };
  Maps maps{.left = tile_map({a.x, a.rows, a.inner, a.inner}, kRows)};
  halves(maps.right, a.weight, a.inner);
  if (a.low) {
    maps.low_left = tile_map({a.low, a.rows, 2 * a.rank, 2 * a.rank}, kRows);
    halves(maps.low_right, a.b, a.rank);
  }
  const auto output = [&](void* data, std::int64_t column, std::int64_t stride) {
    return Output{static_cast<Number*>(data) + column, int(stride), int(a.rows), int(a.width)};
  };
  launch<Pass::forward>(maps, {output(a.gate_up, 0, 2 * a.width), output(a.gate_up, a.width, 2 * a.width), output(a.out, 0, a.width)},
                        {a.rows, a.width, a.inner, a.low ? 2 * a.rank : 0, a.rank}, a.next_tile, stream);
}

void down_backward_swiglu(const DownBackwardSwiglu& a, Stream stream) {
  if (a.rows == 0) return;
  Maps maps{.left = tile_map({a.dout, a.rows, a.inner, a.inner}, kRows)};
  maps.right[0] = maps.right[1] = tile_map({a.weight, a.inner, a.width, a.width}, kStep / kBlocks);
  auto* gate_up = static_cast<Number*>(a.gate_up);
  maps.gate = tile_map({gate_up, a.rows, a.width, 2 * a.width}, kRows);
  maps.up = tile_map({gate_up + a.width, a.rows, a.width, 2 * a.width}, kRows);
  if (a.dlow) {
    maps.low_left = tile_map({a.dlow, a.rows, a.rank, a.rank}, kRows);
    maps.low_right[0] = maps.low_right[1] = tile_map({a.a, a.rank, a.width, a.width}, kStep / kBlocks);
  }
  const Extent extent{a.rows, a.width, a.inner, a.dlow ? a.rank : 0, a.rank};
  const Outputs outputs{.out = {static_cast<Number*>(a.out), int(a.width), int(a.rows), int(a.width)}};
  if (a.out) {
    launch<Pass::backward_and_again>(maps, outputs, extent, a.next_tile, stream);
  } else {
    launch<Pass::backward>(maps, outputs, extent, a.next_tile, stream);
  }
}

}  // namespace lockstep::kernels::cuda
