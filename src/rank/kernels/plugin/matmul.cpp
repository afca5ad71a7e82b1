// In the CUDA plug-in: matmuls through cuBLASLt, each shape with the fastest algorithm that a search found, once per machine.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "base/mutex.h"
#include "rank/kernels/fp8_table.h"
#include "rank/kernels/matmul_cache.h"
#include "rank/kernels/plugin/matmul_plan.h"
#include "rank/kernels/plugin/session.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr double kSearchSeconds = 4e-6;  // below that, launches are what is measured
constexpr int kSearchesOfAWeight = 8;    // row counts that never come again (texts written word by word) are not worth a search

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
  return {.rows = a.rows,
          .columns = a.columns,
          .inner = a.inner,
          .left_stride = a.left_stride,
          .right_stride = a.right_stride,
          .out_stride = a.out_stride,
          .alignment = a.alignment(),
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

cudaDataType_t native_type(Fp8 format) { return format == Fp8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

// One device's handle, plans and scratch. Any thread may call; calls take turns on the host.
class DeviceMatmuls {
 public:
  explicit DeviceMatmuls(int device) : cache_(cache_path(device)), handle_(new_handle()) {}

  bool run(const Product& a, cudaStream_t stream) {
    const base::Lock lock(mutex_);
    const Key key = key_of(a);
    auto found = chosen_.find(key);
    if (found == chosen_.end()) found = chosen_.emplace(key, choose(a, key, stream)).first;
    const Chosen& chosen = found->second;
    if (!chosen.possible) return false;
    check_library(chosen.plan.launch(chosen.algorithm, a, a.out, workspace().get(), stream), "matmul");
    return true;
  }

 private:
  struct Chosen {
    MatmulPlan plan;
    Algorithm algorithm = {};
    bool possible = false;
  };

  static std::filesystem::path cache_path(int device) {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return matmul_cache_path(properties.name, cublasLtGetVersion());
  }

  // Held for a launch alone: the allocator gives it to whoever comes next on the stream, which runs after.
  static c10::DataPtr workspace() { return c10::cuda::CUDACachingAllocator::get()->allocate(kMatmulWorkspaceBytes); }

  Chosen choose(const Product& a, const Key& key, cudaStream_t stream) LOCKSTEP_REQUIRES(mutex_) {
    Chosen chosen{.plan = MatmulPlan(handle_.get(), a)};
    if (const auto known = key.search ? cache_.find(key.text()) : std::nullopt) {
      std::copy(known->begin(), known->end(), chosen.algorithm.data);
      chosen.possible = chosen.plan.can_run(chosen.algorithm);
      if (chosen.possible) return chosen;
    }
    if (const auto first = chosen.plan.proposals(1); !first.empty()) {
      chosen.algorithm = first.front();
      chosen.possible = true;
    }
    if (chosen.possible && worth_a_search(key, stream) &&
        find_fastest({handle_.get(), workspace().get(), stream}, chosen.plan, a, chosen.algorithm)) {
      MatmulCache::Choice choice;
      std::copy(std::begin(chosen.algorithm.data), std::end(chosen.algorithm.data), choice.begin());
      cache_.remember(key.text(), choice);
    }
    return chosen;
  }

  bool worth_a_search(const Key& key, cudaStream_t stream) LOCKSTEP_REQUIRES(mutex_) {
    if (!key.search || least_seconds(key) < kSearchSeconds) return false;
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &capturing));
    if (capturing != cudaStreamCaptureStatusNone) return false;
    // The key but for the batch's row count. A weight's gradient sums over rows; of 8-bit products it alone is not fast, and has them for
    // strides.
    Key weight = key;
    if (key.left_transposed || (key.type >= kFp8Types && !key.fast)) {
      weight.inner = weight.left_stride = weight.right_stride = 0;
    } else {
      weight.rows = 0;
    }
    return ++searches_[weight] <= kSearchesOfAWeight;
  }

  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };
  using Handle = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy>;
  static Handle new_handle() {
    cublasLtHandle_t handle = nullptr;
    check_library(cublasLtCreate(&handle), "handle");
    return Handle(handle);
  }

  base::Mutex mutex_;
  MatmulCache cache_ LOCKSTEP_GUARDED_BY(mutex_);
  Handle handle_;
  std::map<Key, Chosen> chosen_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<Key, int> searches_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace

// Those of all devices.
class Matmuls {
 public:
  bool run(const Product& a, Stream stream) {
    int device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    return of(device).run(a, static_cast<cudaStream_t>(stream));
  }

 private:
  DeviceMatmuls& of(int device) {
    const base::Lock lock(mutex_);
    auto& matmuls = devices_[device];
    if (!matmuls) matmuls = std::make_unique<DeviceMatmuls>(device);
    return *matmuls;
  }

  base::Mutex mutex_;
  std::map<int, std::unique_ptr<DeviceMatmuls>> devices_ LOCKSTEP_GUARDED_BY(mutex_);
};

std::shared_ptr<Matmuls> make_matmuls() { return std::make_shared<Matmuls>(); }

bool matmul(const Matmul& a, Stream stream) { return session().matmuls->run({a, native_type(a.type), native_type(a.type)}, stream); }

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
  return session().matmuls->run(
      {plain, native_type(a.left_format), native_type(a.right_format), &a.left_scale->factor, &a.right_scale->factor, a.fast}, stream);
}

}  // namespace lockstep::kernels::cuda
