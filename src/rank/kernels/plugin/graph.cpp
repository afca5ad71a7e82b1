// In the CUDA plug-in: records a stream's work into CUDA graphs whose memory is a pool of their own.
//
// LibTorch's at::cuda::CUDAGraph does the same, but leaves the allocator in the middle of a recording where one fails; a recording that
// runs out of memory must leave nothing behind, because training goes on without it.
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <utility>

#include "rank/kernels/graph_table.h"

namespace lockstep::kernels {

namespace allocator = c10::cuda::CUDACachingAllocator;

// One recording's hold on the pool: the allocator keeps the pool's memory until all of them are gone.
class PoolHold {
 public:
  PoolHold(c10::DeviceIndex device, std::shared_ptr<const c10::MempoolId_t> pool) : device_(device), pool_(std::move(pool)) {
    allocator::beginAllocateToPool(device, *pool_, [](cudaStream_t stream) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
      return status != cudaStreamCaptureStatusNone;
    });
  }
  ~PoolHold() {
    stop_allocating();
    allocator::releasePool(device_, *pool_);
  }
  PoolHold(const PoolHold&) = delete;

  void stop_allocating() {
    if (std::exchange(allocating_, false)) allocator::endAllocateToPool(device_, *pool_);
  }

 private:
  c10::DeviceIndex device_;
  std::shared_ptr<const c10::MempoolId_t> pool_;
  bool allocating_ = true;
};

struct NativeGraph {
  c10::DeviceIndex device;
  cudaGraphExec_t executable = nullptr;
  std::unique_ptr<PoolHold> memory;

  ~NativeGraph() {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK_WARN(cudaGraphExecDestroy(executable));
  }
};

struct NativeRecorder {
  explicit NativeRecorder(c10::DeviceIndex on) : device(on), stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, on)) {}

  void begin() {
    outside.emplace(c10::cuda::CUDAStream(stream));
    try {
      memory = std::make_unique<PoolHold>(device, shared_pool());
      // Other threads (loaders, NCCL's watcher) may do what they like meanwhile.
      C10_CUDA_CHECK(cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeThreadLocal));
    } catch (...) {
      memory.reset();
      outside.reset();
      throw;
    }
  }

  NativeGraph* end() {
    cudaGraph_t recorded = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream.stream(), &recorded);
    memory->stop_allocating();
    outside.reset();
    auto hold = std::move(memory);
    C10_CUDA_CHECK(ended);
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, recorded, 0);
    C10_CUDA_CHECK_WARN(cudaGraphDestroy(recorded));
    C10_CUDA_CHECK(made);
    return new NativeGraph{device, executable, std::move(hold)};
  }

  void abandon() noexcept {
    cudaGraph_t recorded = nullptr;
    // Fails where the recording was spoilt, which is why it is abandoned.
    if (cudaStreamEndCapture(stream.stream(), &recorded) == cudaSuccess && recorded != nullptr) cudaGraphDestroy(recorded);
    cudaGetLastError();
    memory.reset();
    outside.reset();
  }

  // The one of the graphs that live; a new one where none does, because the allocator refuses a pool that all have left while a tensor
  // is still in it.
  std::shared_ptr<const c10::MempoolId_t> shared_pool() {
    auto id = pool.lock();
    if (!id) pool = id = std::make_shared<const c10::MempoolId_t>(at::cuda::MemPool::graph_pool_handle());
    return id;
  }

  const c10::DeviceIndex device;
  const c10::cuda::CUDAStream stream;
  std::weak_ptr<const c10::MempoolId_t> pool;
  // While recording:
  std::optional<c10::cuda::CUDAStreamGuard> outside;  // brings the stream of before back
  std::unique_ptr<PoolHold> memory;
};

namespace cuda {

const GraphTable& graph_table() {
  static const GraphTable table{
      .make_recorder = [](int device) { return new NativeRecorder(static_cast<c10::DeviceIndex>(device)); },
      .destroy_recorder = [](NativeRecorder* recorder) { delete recorder; },
      .begin = [](NativeRecorder* recorder) { recorder->begin(); },
      .end = [](NativeRecorder* recorder) { return recorder->end(); },
      .abandon = [](NativeRecorder* recorder) { recorder->abandon(); },
      .launch =
          [](NativeGraph* graph) {
            C10_CUDA_CHECK(cudaGraphLaunch(graph->executable, c10::cuda::getCurrentCUDAStream(graph->device).stream()));
          },
      .destroy_graph = [](NativeGraph* graph) { delete graph; }};
  return table;
}

}  // namespace cuda
}  // namespace lockstep::kernels
