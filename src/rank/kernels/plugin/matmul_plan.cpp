// In the CUDA plug-in: descriptors, layouts and preferences of cuBLASLt.
#include <stdexcept>
#include <string>

#include "rank/kernels/plugin/matmul_plan.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr auto set_attribute = [](auto setter, auto* object, auto name, const auto& value, const char* what) {
  check_library(setter(object, name, &value, sizeof(value)), what);
};

void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name, const auto& value) {
  set_attribute(cublasLtMatmulDescSetAttribute, operation, name, value, "operation");
}

// What is an address and thus another in every call.
void set_pointers(cublasLtMatmulDesc_t operation, const Product& a) {
  if (a.bias) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, a.bias);
  if (!a.is_fp8()) return;
  set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a.right_factor);
  set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a.left_factor);
}

}  // namespace

void check_library(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string("cuBLASLt: ") + what + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t native_type(Type type) { return type == Type::f32 ? CUDA_R_32F : type == Type::bf16 ? CUDA_R_16BF : CUDA_R_16F; }

int Product::alignment() const {
  int bytes = 16;
  for (const void* pointer : {left, right, bias, static_cast<const void*>(out)})
    while (reinterpret_cast<std::uintptr_t>(pointer) % std::uintptr_t(bytes) != 0) bytes /= 2;
  return bytes;
}

MatmulPlan::MatmulPlan(cublasLtHandle_t handle, const Product& a)
    : handle_(handle),
      operation_(operation_of(a)),
      first_(layout_of(a.right_type, a.right_transposed, a.inner, a.columns, a.right_stride)),
      second_(layout_of(a.left_type, a.left_transposed, a.rows, a.inner, a.left_stride)),
      out_(layout_of(native_type(a.out_type), false, a.rows, a.columns, a.out_stride)),
      alignment_(a.alignment()) {}

MatmulPlan::Operation MatmulPlan::operation_of(const Product& a) {
  cublasLtMatmulDesc_t made = nullptr;
  check_library(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
  Operation operation(made);
  set(made, CUBLASLT_MATMUL_DESC_TRANSA, a.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made, CUBLASLT_MATMUL_DESC_TRANSB, a.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (a.bias) set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  if (a.is_fp8()) set(made, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t(a.fast ? 1 : 0));
  set_pointers(made, a);
  return operation;
}

MatmulPlan::Layout MatmulPlan::layout_of(cudaDataType_t type, bool transposed, std::int64_t rows, std::int64_t columns,
                                         std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_library(cublasLtMatrixLayoutCreate(&made, type, std::uint64_t(transposed ? rows : columns),
                                           std::uint64_t(transposed ? columns : rows), stride),
                "layout");
  return Layout(made);
}

std::vector<Algorithm> MatmulPlan::proposals(int most) const {
  cublasLtMatmulPreference_t made = nullptr;
  check_library(cublasLtMatmulPreferenceCreate(&made), "preference");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(&cublasLtMatmulPreferenceDestroy)> preference(
      made, cublasLtMatmulPreferenceDestroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    set_attribute(cublasLtMatmulPreferenceSetAttribute, made, name, value, "preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMatmulWorkspaceBytes);
  // Parts of a sum are added in f32 and in a fixed order, never rounded to 16 bits in between.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(name, std::uint32_t(alignment_));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  cublasLtMatmulAlgoGetHeuristic(handle_, operation_.get(), first_.get(), second_.get(), out_.get(), out_.get(), made, most, results.data(),
                                 &count);  // a failure leaves the count at 0: no algorithm
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i)
    if (results[std::size_t(i)].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[std::size_t(i)].algo);
  return algorithms;
}

bool MatmulPlan::can_run(const Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, operation_.get(), first_.get(), second_.get(), out_.get(), out_.get(), &algorithm, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kMatmulWorkspaceBytes;
}

cublasStatus_t MatmulPlan::launch(const Algorithm& algorithm, const Product& a, void* out, void* workspace, cudaStream_t stream) const {
  set_pointers(operation_.get(), a);
  const float alpha = a.scale, beta = a.accumulate ? 1 : 0;
  return cublasLtMatmul(handle_, operation_.get(), &alpha, a.right, first_.get(), a.left, second_.get(), &beta, out, out_.get(), out,
                        out_.get(), &algorithm, workspace, kMatmulWorkspaceBytes, stream);
}

}  // namespace lockstep::kernels::cuda
