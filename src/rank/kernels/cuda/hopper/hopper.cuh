// What only Hopper's processors (compute capability 9.0) can do: copies of tiles between memory and shared memory that run by
// themselves, barriers that count their bytes, clusters of two blocks that share what they read, and products of whole tiles.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels::cuda::hopper {

inline constexpr int kGroupThreads = 128;  // a warpgroup: what makes one product together

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Words of shared memory, by address.
__device__ __forceinline__ void put(std::uint32_t address, std::uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
__device__ __forceinline__ std::uint32_t get(std::uint32_t address) {
  std::uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

// ---- barriers in shared memory, by address ----
// They order what copies and products do, which no wider scope is needed for: across the cluster it would flush caches at every arrival.

__device__ __forceinline__ void init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the same barrier of another block of the cluster, or of this one.
__device__ __forceinline__ void arrive_at(std::uint32_t barrier, std::uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
// A word into another block's shared memory, or this one's, whose barrier counts its 4 bytes when it is there.
__device__ __forceinline__ void send_word(std::uint32_t to, std::uint32_t word, std::uint32_t barrier, std::uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 there, told;\n"
      "mapa.shared::cluster.u32 there, %0, %3;\n"
      "mapa.shared::cluster.u32 told, %2, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [told];\n"
      "}" ::"r"(to),
      "r"(word), "r"(barrier), "r"(block)
      : "memory");
}
__device__ __forceinline__ void wait(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ std::uint32_t block_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}
// Among the threads of one warpgroup; groups take different names from 1 on.
__device__ __forceinline__ void group_sync(int name) { asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(kGroupThreads) : "memory"); }

// ---- copies of tiles; x counts columns, y rows; what lies outside of the matrix reads as 0 and is not written ----

__device__ __forceinline__ void load_tile(const CUtensorMap& map, int x, int y, std::uint32_t to, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(&map), "r"(x), "r"(y), "r"(barrier)
               : "memory");
}
// Into the same place of every block of the cluster that the mask names, at the barrier of each.
__device__ __forceinline__ void load_tile_for(std::uint16_t mask, const CUtensorMap& map, int x, int y, std::uint32_t to,
                                              std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
      "%5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
      : "memory");
}
__device__ __forceinline__ void store_tile(const CUtensorMap& map, int x, int y, std::uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y), "r"(from)
               : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until shared memory may be written again.
__device__ __forceinline__ void wait_for_stores_to_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// What threads wrote to shared memory becomes visible to the copies that start after it.
__device__ __forceinline__ void publish_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- products of tiles in shared memory ----

// A tile of 16-bit numbers in rows of 128 bytes, swizzled as copies leave it. The summed dimension runs along the rows: strides of 8 rows.
__device__ __forceinline__ std::uint64_t along_rows(std::uint32_t address) {
  return std::uint64_t(address >> 4 & 0x3fff) | std::uint64_t(1) << 16 | std::uint64_t(1024 >> 4) << 32 | std::uint64_t(1) << 62;
}
// The summed dimension runs down the rows; the next 64 columns are a tile of their own, `apart` bytes on.
__device__ __forceinline__ std::uint64_t down_rows(std::uint32_t address, int apart) {
  return std::uint64_t(address >> 4 & 0x3fff) | std::uint64_t(apart >> 4) << 16 | std::uint64_t(1024 >> 4) << 32 | std::uint64_t(1) << 62;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// sum (+)= left [64, 16] right [16, 192] in bf16, summed in f32. kDown: the right factor's summed dimension runs down its rows.
// clang-format off
#define LOCKSTEP_8(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]), "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
// clang-format on
template <bool kDown>
__device__ __forceinline__ void multiply_64x192(float (&sum)[96], std::uint64_t left, std::uint64_t right, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred more;\n"
      "setp.ne.b32 more, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "%96, %97, more, 1, 1, 0, %99;\n"
      "}"
      : LOCKSTEP_8(0), LOCKSTEP_8(8), LOCKSTEP_8(16), LOCKSTEP_8(24), LOCKSTEP_8(32), LOCKSTEP_8(40), LOCKSTEP_8(48), LOCKSTEP_8(56),
        LOCKSTEP_8(64), LOCKSTEP_8(72), LOCKSTEP_8(80), LOCKSTEP_8(88)
      : "l"(left), "l"(right), "r"(accumulate), "n"(kDown ? 1 : 0));
}
#undef LOCKSTEP_8

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace lockstep::kernels::cuda::hopper
