// In the CUDA plug-in: times algorithms on the matrices at hand. The library's first proposal is often 5 to 15 % from the best one, its
// few proposals for a shape often 3 % from what it proposes for a similar one.
#include <c10/cuda/CUDAException.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rank/kernels/plugin/matmul_plan.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kProposals = 32, kProposalsOfSimilar = 4;  // each kernel that is tried is loaded first, which takes longer than it runs
constexpr int kFinalists = 6;
constexpr int kFinalTurns = 4;

bool same(const Algorithm& a, const Algorithm& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// The product with one of its sides half or twice as long, and strides that allow for it.
std::vector<Product> similar(const Product& a) {
  std::vector<Product> products;
  for (std::int64_t Matmul::*side : {&Matmul::rows, &Matmul::columns, &Matmul::inner}) {
    for (const auto& [times, over] : {std::pair{1, 2}, std::pair{2, 1}}) {
      Product b = a;
      b.*side = a.*side * times / over;
      if (b.*side == 0) continue;
      b.left_stride = std::max(a.left_stride, b.left_transposed ? b.rows : b.inner);
      b.right_stride = std::max(a.right_stride, b.right_transposed ? b.inner : b.columns);
      b.out_stride = std::max(a.out_stride, b.columns);
      products.push_back(b);
    }
  }
  return products;
}

std::vector<Algorithm> candidates(const MatmulSearch& search, const MatmulPlan& plan, const Product& a) {
  std::vector<Algorithm> all = plan.proposals(kProposals);
  for (const Product& near : similar(a)) {
    for (const Algorithm& algorithm : MatmulPlan(search.handle, near).proposals(kProposalsOfSimilar)) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const Algorithm& other) { return same(algorithm, other); });
      if (!known && plan.can_run(algorithm)) all.push_back(algorithm);
    }
  }
  return all;
}

class Trial {
 public:
  Trial(const MatmulSearch& search, const MatmulPlan& plan, const Product& a, void* out) : search_(search), plan_(plan), a_(a), out_(out) {
    C10_CUDA_CHECK(cudaEventCreate(&start_));
    C10_CUDA_CHECK(cudaEventCreate(&stop_));
  }
  Trial(const Trial&) = delete;
  ~Trial() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }

  // Milliseconds a round; infinite where the algorithm does not run.
  float time(const Algorithm& algorithm, int rounds) {
    if (launch(algorithm) != CUBLAS_STATUS_SUCCESS) return INFINITY;  // the first call also loads the kernel
    C10_CUDA_CHECK(cudaEventRecord(start_, search_.stream));
    for (int i = 0; i < rounds; ++i) launch(algorithm);
    C10_CUDA_CHECK(cudaEventRecord(stop_, search_.stream));
    C10_CUDA_CHECK(cudaEventSynchronize(stop_));
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return milliseconds / float(rounds);
  }

 private:
  cublasStatus_t launch(const Algorithm& algorithm) { return plan_.launch(algorithm, a_, out_, search_.workspace, search_.stream); }

  const MatmulSearch& search_;
  const MatmulPlan& plan_;
  const Product& a_;
  void* out_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

struct Timed {
  float milliseconds;
  Algorithm algorithm;
};

// Every candidate once, then the best few in turns: under load the chip changes its clock, and what runs first must not profit.
Timed best_of(Trial& trial, const std::vector<Algorithm>& candidates) {
  const auto faster = [](const Timed& x, const Timed& y) { return x.milliseconds < y.milliseconds; };
  std::vector<Timed> timed;
  const float first = trial.time(candidates.front(), 2);  // the chip at speed, its caches as they will be
  // Short products are repeated until what is measured is long beside an event.
  const auto rounds = [&](float milliseconds, int least) {
    return std::isfinite(first) ? std::clamp(int(milliseconds / first), least, 20) : least;
  };
  for (const Algorithm& candidate : candidates) timed.push_back({trial.time(candidate, rounds(0.1f, 2)), candidate});
  std::stable_sort(timed.begin(), timed.end(), faster);
  timed.resize(std::min<std::size_t>(timed.size(), kFinalists));
  for (Timed& finalist : timed) finalist.milliseconds = 0;
  for (int turn = 0; turn < kFinalTurns; ++turn)
    for (Timed& finalist : timed) finalist.milliseconds += trial.time(finalist.algorithm, rounds(0.3f, 3));
  return *std::min_element(timed.begin(), timed.end(), faster);
}

}  // namespace

bool find_fastest(const MatmulSearch& search, const MatmulPlan& plan, const Product& a, Algorithm& fastest) {
  const std::vector<Algorithm> all = candidates(search, plan, a);
  if (all.empty()) return false;
  // An output that accumulates is not touched while searching. Its stand-in comes from the driver and goes back at once, so that
  // the allocator's figures are those of training; without the memory there is no search this time.
  std::unique_ptr<void, decltype(&cudaFree)> stand_in(nullptr, cudaFree);
  if (a.accumulate) {
    const auto bytes = std::size_t(a.rows) * std::size_t(a.out_stride) * (a.out_type == Type::f32 ? 4 : 2);
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    stand_in.reset(memory);
    C10_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, search.stream));
  }
  Trial trial(search, plan, a, stand_in ? stand_in.get() : a.out);
  const Timed best = best_of(trial, all);
  fastest = best.algorithm;
  return std::isfinite(best.milliseconds);
}

}  // namespace lockstep::kernels::cuda
