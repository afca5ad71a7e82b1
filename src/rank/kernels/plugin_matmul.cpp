// In the CUDA plug-in: matmuls through cuBLASLt, each shape with the fastest of the algorithms that the library proposes for it.
// The library's first proposal is often 5 to 15 % from its best; a search costs a few milliseconds a shape, once per machine.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "rank/kernels/fp8_table.h"
#include "rank/kernels/matmul_cache.h"
#include "rank/kernels/table.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t(64) << 20;
constexpr int kCandidates = 32;
constexpr int kFinalists = 5, kFinalRounds = 6;
constexpr double kSearchSeconds = 12e-6;  // below that, launches are what is measured
constexpr int kSearchesOfAWeight = 8;     // row counts that never come again (texts written word by word) are not worth a search

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string("cuBLASLt: ") + what + ": " + cublasLtGetStatusString(status));
}

struct Destroy {
  void operator()(cublasLtMatmulDescOpaque_t* p) const { cublasLtMatmulDescDestroy(p); }
  void operator()(cublasLtMatrixLayoutOpaque_t* p) const { cublasLtMatrixLayoutDestroy(p); }
  void operator()(cublasLtMatmulPreferenceOpaque_t* p) const { cublasLtMatmulPreferenceDestroy(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;
using Operation = Owned<cublasLtMatmulDescOpaque_t>;
using Layout = Owned<cublasLtMatrixLayoutOpaque_t>;
using Preference = Owned<cublasLtMatmulPreferenceOpaque_t>;

// A matmul with what 8-bit factors bring along.
struct Product : Matmul {
  cudaDataType_t left_type, right_type;
  const float *left_factor = nullptr, *right_factor = nullptr;  // 8-bit factors alone: what their numbers are multiplied with
  bool fast = false;

  bool is_fp8() const { return left_factor != nullptr; }
};

// What decides the choice of an algorithm.
struct Key {
  std::int64_t rows, columns, inner, left_stride, right_stride, out_stride;
  int alignment;  // bytes, of every pointer
  int type, out_type;
  bool left_transposed, right_transposed, accumulate, bias, fast, search;

  auto operator<=>(const Key&) const = default;
  std::string text() const {
    std::string text = left_transposed ? "t" : "n";
    text += right_transposed ? "t" : "n";
    text += accumulate ? "+" : "=";
    if (bias) text += "b";
    if (fast) text += "f";
    for (const std::int64_t number :
         {std::int64_t(type), std::int64_t(out_type), rows, columns, inner, left_stride, right_stride, out_stride, std::int64_t(alignment)})
      text += " " + std::to_string(number);
    return text;
  }
};

// 16-bit factors by their one type, 8-bit ones by both of theirs.
constexpr int kFp8Types = 1000;
int type_number(const Product& a) { return a.is_fp8() ? kFp8Types * int(a.left_type) + int(a.right_type) : int(a.type); }

Key key_of(const Product& a) {
  int alignment = 16;
  for (const void* pointer : {a.left, a.right, a.bias, static_cast<const void*>(a.out)})
    while (reinterpret_cast<std::uintptr_t>(pointer) % std::uintptr_t(alignment) != 0) alignment /= 2;
  return {.rows = a.rows,
          .columns = a.columns,
          .inner = a.inner,
          .left_stride = a.left_stride,
          .right_stride = a.right_stride,
          .out_stride = a.out_stride,
          .alignment = alignment,
          .type = type_number(a),
          .out_type = int(a.out_type),
          .left_transposed = a.left_transposed,
          .right_transposed = a.right_transposed,
          .accumulate = a.accumulate,
          .bias = a.bias != nullptr,
          .fast = a.fast,
          .search = a.search};
}

// What the product takes at best on an H200: its operations at 700 TFLOP/s, or its bytes at 4 TB/s where it is thin (adapters).
double least_seconds(const Key& key) {
  const double rows = double(key.rows), columns = double(key.columns), inner = double(key.inner);
  const double out_bytes = (Type(key.out_type) == Type::f32 ? 4.0 : 2.0) * (key.accumulate ? 2 : 1);
  return std::max(2 * rows * columns * inner / 700e12, (2 * inner * (rows + columns) + out_bytes * rows * columns) / 4e12);
}

cudaDataType_t native_type(Type type) { return type == Type::f32 ? CUDA_R_32F : type == Type::bf16 ? CUDA_R_16BF : CUDA_R_16F; }
cudaDataType_t native_type(Fp8 format) { return format == Fp8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

// The library counts columns first: it sees every matrix transposed, so the right factor is its first.
struct Plan {
  Operation operation;
  Layout first, second, out;
  cublasLtMatmulAlgo_t algorithm;
  bool possible = false;
};

Layout layout(cudaDataType_t type, bool transposed, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type, std::uint64_t(transposed ? rows : columns), std::uint64_t(transposed ? columns : rows),
                                   stride),
        "layout");
  return Layout(made);
}

void set_factors(const Operation& operation, const Product& a) {
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const float* factor) {
    check(cublasLtMatmulDescSetAttribute(operation.get(), name, &factor, sizeof(factor)), "factor");
  };
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a.right_factor);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a.left_factor);
}

Operation operation_of(const Product& a) {
  cublasLtMatmulDesc_t made = nullptr;
  check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
  Operation operation(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(made, name, &value, sizeof(value)), "operation");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, a.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, a.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (a.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, a.bias);
  }
  if (a.is_fp8()) {
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t(a.fast ? 1 : 0));
    set_factors(operation, a);
  }
  return operation;
}

// One device's handle, plans and scratch. Any thread may call; calls take turns on the host.
class Matmuls {
 public:
  explicit Matmuls(int device) : cache_(cache_path(device)) { check(cublasLtCreate(&handle_), "handle"); }
  Matmuls(const Matmuls&) = delete;

  bool run(const Product& a, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    auto key = key_of(a);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, make_plan(a, key, stream)).first;
    auto& plan = found->second;
    if (!plan.possible) return false;
    if (a.bias)
      check(cublasLtMatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a.bias, sizeof(a.bias)), "bias");
    if (a.is_fp8()) set_factors(plan.operation, a);
    check(launch(plan, plan.algorithm, a, a.out, stream), "matmul");
    return true;
  }

 private:
  static std::filesystem::path cache_path(int device) {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return matmul_cache_path(properties.name, cublasLtGetVersion());
  }

  cublasStatus_t launch(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Product& a, void* out, cudaStream_t stream) {
    const float alpha = a.scale, beta = a.accumulate ? 1 : 0;
    return cublasLtMatmul(handle_, plan.operation.get(), &alpha, a.right, plan.first.get(), a.left, plan.second.get(), &beta, out,
                          plan.out.get(), out, plan.out.get(), &algorithm, workspace(stream), kWorkspaceBytes, stream);
  }

  // A workspace for each stream: two matmuls that may overlap must not share one.
  void* workspace(cudaStream_t stream) {
    auto& memory = workspaces_[stream];
    if (!memory) memory = c10::cuda::CUDACachingAllocator::get()->allocate(kWorkspaceBytes);
    return memory.get();
  }

  Plan make_plan(const Product& a, const Key& key, cudaStream_t stream) {
    Plan plan{.operation = operation_of(a),
              .first = layout(a.right_type, a.right_transposed, a.inner, a.columns, a.right_stride),
              .second = layout(a.left_type, a.left_transposed, a.rows, a.inner, a.left_stride),
              .out = layout(native_type(a.out_type), false, a.rows, a.columns, a.out_stride),
              .algorithm = {}};
    if (const auto known = key.search ? cache_.find(key.text()) : std::nullopt; known && usable(plan, *known)) {
      std::copy(known->begin(), known->end(), plan.algorithm.data);
      plan.possible = true;
      return plan;
    }
    const bool search = worth_a_search(key, stream);
    auto found = proposals(plan, key, search ? kCandidates : 1);
    if (found.empty()) return plan;
    plan.possible = true;
    plan.algorithm = found.front();
    if (search) choose(plan, std::move(found), a, key, stream);
    return plan;
  }

  bool worth_a_search(const Key& key, cudaStream_t stream) {
    if (!key.search || least_seconds(key) < kSearchSeconds) return false;
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &capturing));
    if (capturing != cudaStreamCaptureStatusNone) return false;
    Key weight = key;
    const bool fp8_gradient = key.accumulate && key.type >= kFp8Types;
    (key.left_transposed || fp8_gradient ? weight.inner : weight.rows) = 0;
    return ++searches_[weight] <= kSearchesOfAWeight;
  }

  bool usable(const Plan& plan, const MatmulCache::Choice& choice) {
    cublasLtMatmulAlgo_t algorithm{};
    std::copy(choice.begin(), choice.end(), algorithm.data);
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_, plan.operation.get(), plan.first.get(), plan.second.get(), plan.out.get(), plan.out.get(),
                                   &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kWorkspaceBytes;
  }

  std::vector<cublasLtMatmulAlgo_t> proposals(const Plan& plan, const Key& key, int most) {
    cublasLtMatmulPreference_t made = nullptr;
    check(cublasLtMatmulPreferenceCreate(&made), "preference");
    const Preference preference(made);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof(value)), "preference");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Parts of a sum are added in f32 and in a fixed order, never rounded to 16 bits in between.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto alignment = std::uint32_t(key.alignment);
    for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(name, alignment);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.first.get(), plan.second.get(), plan.out.get(), plan.out.get(), made,
                                   most, results.data(), &count);  // a failure leaves the count at 0: no algorithm
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i)
      if (results[std::size_t(i)].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[std::size_t(i)].algo);
    return algorithms;
  }

  // Times every candidate once, the best few again, and keeps the fastest.
  void choose(Plan& plan, std::vector<cublasLtMatmulAlgo_t> candidates, const Product& a, const Key& key, cudaStream_t stream) {
    // An output that accumulates is not touched while searching. Its stand-in comes from the driver and goes back at once, so that
    // the allocator's figures are those of training; without the memory there is no search this time.
    void* out = a.out;
    if (a.accumulate) {
      const auto bytes = std::size_t(a.rows) * std::size_t(a.out_stride) * (a.out_type == Type::f32 ? 4 : 2);
      if (cudaMalloc(&out, bytes) != cudaSuccess) {
        cudaGetLastError();
        return;
      }
      C10_CUDA_CHECK(cudaMemsetAsync(out, 0, bytes, stream));
    }
    struct Timed {
      float milliseconds;
      cublasLtMatmulAlgo_t algorithm;
    };
    const auto faster = [](const Timed& x, const Timed& y) { return x.milliseconds < y.milliseconds; };
    std::vector<Timed> timed;
    time(plan, candidates.front(), a, out, stream, 1);  // the chip at speed, its caches as they will be
    for (const auto& candidate : candidates) timed.push_back({time(plan, candidate, a, out, stream, 2), candidate});
    std::stable_sort(timed.begin(), timed.end(), faster);
    timed.resize(std::min<std::size_t>(timed.size(), kFinalists));
    for (auto& finalist : timed) finalist.milliseconds = time(plan, finalist.algorithm, a, out, stream, kFinalRounds);
    const auto best = std::min_element(timed.begin(), timed.end(), faster);
    if (a.accumulate) C10_CUDA_CHECK(cudaFree(out));
    if (!std::isfinite(best->milliseconds)) return;
    plan.algorithm = best->algorithm;
    MatmulCache::Choice choice;
    std::copy(std::begin(plan.algorithm.data), std::end(plan.algorithm.data), choice.begin());
    cache_.remember(key.text(), choice);
  }

  // Milliseconds a round; infinite where the algorithm does not run.
  float time(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Product& a, void* out, cudaStream_t stream, int rounds) {
    if (launch(plan, algorithm, a, out, stream) != CUBLAS_STATUS_SUCCESS) return INFINITY;  // the first call also loads the kernel
    cudaEvent_t start = nullptr, stop = nullptr;
    C10_CUDA_CHECK(cudaEventCreate(&start));
    C10_CUDA_CHECK(cudaEventCreate(&stop));
    C10_CUDA_CHECK(cudaEventRecord(start, stream));
    for (int i = 0; i < rounds; ++i) launch(plan, algorithm, a, out, stream);
    C10_CUDA_CHECK(cudaEventRecord(stop, stream));
    C10_CUDA_CHECK(cudaEventSynchronize(stop));
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    C10_CUDA_CHECK(cudaEventDestroy(start));
    C10_CUDA_CHECK(cudaEventDestroy(stop));
    return milliseconds / float(rounds);
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  MatmulCache cache_;
  std::map<Key, Plan> plans_;
  std::map<Key, int> searches_;
  std::map<cudaStream_t, c10::DataPtr> workspaces_;
};

Matmuls& matmuls_of(int device) {
  // Never destroyed: at exit the CUDA runtime may be gone before them.
  static auto& all = *new std::map<int, std::unique_ptr<Matmuls>>;
  static auto& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  auto& matmuls = all[device];
  if (!matmuls) matmuls = std::make_unique<Matmuls>(device);
  return *matmuls;
}

bool run(const Product& a, Stream stream) {
  int device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  return matmuls_of(device).run(a, static_cast<cudaStream_t>(stream));
}

}  // namespace

bool matmul(const Matmul& a, Stream stream) { return run({a, native_type(a.type), native_type(a.type)}, stream); }

bool fp8_matmul(const Fp8Matmul& a, Stream stream) {
  const Matmul plain{.left = a.left,
                     .right = a.right,
                     .bias = a.bias,
                     .out = a.out,
                     .rows = a.rows,
                     .columns = a.columns,
                     .inner = a.inner,
                     .left_stride = a.inner,
                     .right_stride = a.inner,
                     .out_stride = a.out_stride,
                     .left_transposed = false,
                     .right_transposed = true,
                     .accumulate = a.accumulate,
                     .scale = 1,
                     .search = a.search,
                     .type = a.out_type,
                     .out_type = a.out_type};
  return run({plain, native_type(a.left_format), native_type(a.right_format), &a.left_scale->factor, &a.right_scale->factor, a.fast},
             stream);
}

}  // namespace lockstep::kernels::cuda
