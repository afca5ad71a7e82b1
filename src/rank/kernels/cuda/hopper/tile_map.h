// How a matrix lies in memory, as Hopper's copies of tiles want it described.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep::kernels::cuda {

// bf16, `stride` numbers from row to row; both the address and the stride's bytes are multiples of 16.
struct Matrix {
  const void* data;
  std::int64_t rows, columns, stride;
};

// The driver's function, asked for at run time: a plug-in that linked the driver would not load where there is none.
inline auto tile_map_encoder() {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                   const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) throw std::runtime_error("CUDA: the driver has no tile maps");
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

// In boxes of `box_rows` rows and 64 columns, whose 16-byte parts are swizzled: what multiplies them reads without conflicts.
inline CUtensorMap tile_map(const Matrix& m, int box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {cuuint64_t(m.columns), cuuint64_t(m.rows)}, strides[] = {cuuint64_t(m.stride) * 2};
  const cuuint32_t box[] = {64, cuuint32_t(box_rows)}, each[] = {1, 1};
  const auto result = tile_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(m.data), sizes, strides, box, each,
                                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA: no tile map for a matrix (error " + std::to_string(int(result)) + ")");
  return map;
}

}  // namespace lockstep::kernels::cuda
