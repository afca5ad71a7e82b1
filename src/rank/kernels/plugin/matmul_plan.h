// In the CUDA plug-in: a matmul as cuBLASLt sees it, and the algorithms the library proposes for it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "rank/kernels/table.h"

namespace lockstep::kernels::cuda {

inline constexpr std::size_t kMatmulWorkspaceBytes = std::size_t(32) << 20;

void check_library(cublasStatus_t status, const char* what);

// A matmul with what 8-bit factors bring along.
struct Product : Matmul {
  cudaDataType_t left_type, right_type;
  const float *left_factor = nullptr, *right_factor = nullptr;  // 8-bit factors alone: what their numbers are multiplied with
  bool fast = false;

  bool is_fp8() const { return left_factor != nullptr; }
  int alignment() const;  // bytes, of every pointer
};

cudaDataType_t native_type(Type type);

using Algorithm = cublasLtMatmulAlgo_t;

// A product's shapes and types, ready to run with any pointers of the same alignment.
class MatmulPlan {
 public:
  MatmulPlan(cublasLtHandle_t handle, const Product& a);

  // At most `most` algorithms, the library's favorite first; none where it cannot multiply such matrices.
  std::vector<Algorithm> proposals(int most) const;
  bool can_run(const Algorithm& algorithm) const;
  // out stands in for a.out.
  cublasStatus_t launch(const Algorithm& algorithm, const Product& a, void* out, void* workspace, cudaStream_t stream) const;

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDescOpaque_t* p) const { cublasLtMatmulDescDestroy(p); }
    void operator()(cublasLtMatrixLayoutOpaque_t* p) const { cublasLtMatrixLayoutDestroy(p); }
  };
  using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;

  static Operation operation_of(const Product& a);
  static Layout layout_of(cudaDataType_t type, bool transposed, std::int64_t rows, std::int64_t columns, std::int64_t stride);

  cublasLtHandle_t handle_;
  Operation operation_;
  // The library counts columns first: it sees every matrix transposed, so the right factor is its first.
  Layout first_, second_, out_;
  int alignment_;
};

// The fastest algorithm for a product, by trying; nothing where none runs or memory for the trial is missing.
struct MatmulSearch {
  cublasLtHandle_t handle;
  void* workspace;
  cudaStream_t stream;
};
bool find_fastest(const MatmulSearch& search, const MatmulPlan& plan, const Product& a, Algorithm& fastest);

}  // namespace lockstep::kernels::cuda
