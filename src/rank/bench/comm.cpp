// Collectives over sizes, timed as nccl-tests times them: calls in a row, the slowest rank counts.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/system/host_memory.h"
#include "base/text.h"
#include "rank/bench/bench.h"
#include "rank/kernels/plugin.h"
#include "rank/train/watch/faults.h"

namespace lockstep::bench {
namespace {

constexpr double seconds_a_case = 0.2;
constexpr int most_calls = 200;
constexpr std::int64_t most_verified_bytes = 64 << 20;  // what is expected takes room too, and a wrong way is wrong at any size

std::int64_t free_memory(at::Device device) {
  if (device.is_cuda()) {
    std::uint64_t free = 0, total = 0;
    kernels::cuda_plugin().free_memory_bytes(device.index(), &free, &total);
    return static_cast<std::int64_t>(free);
  }
  return static_cast<std::int64_t>(base::look_at_host_memory().usable());
}

class CommBench {
 public:
  explicit CommBench(const comm::World& world)
      : group_(world.everyone()),
        device_(world.device()),
        spoils_sums_(train::Faults::from_environment(world.place().rank).spoils_loss(1)) {}

  // What every rank may allocate, half of what is free shared among ranks of the machine: backends hold copies of their own.
  std::int64_t budget(const comm::Place& place) const {
    return static_cast<std::int64_t>(slowest(-static_cast<double>(free_memory(device_)))) / -2 / place.local_world_size;
  }

  std::vector<CommResult> run(std::int64_t bytes) const {
    const std::int64_t ranks = group_.size();
    const std::int64_t mine_count = std::max<std::int64_t>(1, bytes / 4 / ranks), whole_count = mine_count * ranks;
    const auto options = at::TensorOptions().device(device_).dtype(at::kFloat);
    const auto whole = at::zeros({whole_count}, options), mine = at::zeros({mine_count}, options);
    const std::int64_t whole_bytes = whole_count * 4;
    if (whole_bytes <= most_verified_bytes) verify(whole, mine);
    return {
        time("all_reduce", whole_bytes, [&] { group_.all_reduce(whole, comm::Reduce::sum, "benchmark").wait(); }),
        time("all_gather", whole_bytes, [&] { group_.all_gather(whole, mine, "benchmark").wait(); }),
        time("reduce_scatter", whole_bytes, [&] { group_.reduce_scatter(mine, whole, comm::Reduce::sum, "benchmark").wait(); }),
        time("broadcast", whole_bytes, [&] { group_.broadcast(whole, 0, "benchmark").wait(); }),
    };
  }

 private:
  // Small whole numbers, whose sums are exact in any order, shifted by the rank: each element that comes out is known to the last bit.
  at::Tensor numbers(std::int64_t first, std::int64_t count, double shift) const {
    const auto options = at::TensorOptions().device(device_).dtype(at::kLong);
    return at::arange(first, first + count, options).remainder(251).to(at::kFloat).add(shift);
  }

  // Each collective once, with numbers whose results are known. UserError on the rank that got others.
  void verify(const at::Tensor& whole, const at::Tensor& mine) const {
    const std::int64_t all = whole.numel(), part = mine.numel();
    const double n = group_.size(), rank = group_.rank(), ranks_sum = n * (n - 1) / 2;
    whole.copy_(numbers(0, all, rank));
    group_.all_reduce(whole, comm::Reduce::sum, "known numbers").wait();
    if (spoils_sums_) whole.narrow(0, all / 2, 1).add_(1);
    expect("all_reduce", whole, numbers(0, all, 0).mul(n).add(ranks_sum));
    mine.copy_(numbers(0, part, rank));
    group_.all_gather(whole, mine, "known numbers").wait();
    for (std::int64_t other = 0; other < group_.size(); ++other)
      expect("all_gather", whole.narrow(0, other * part, part), numbers(0, part, static_cast<double>(other)));
    whole.copy_(numbers(0, all, rank));
    group_.reduce_scatter(mine, whole, comm::Reduce::sum, "known numbers").wait();
    expect("reduce_scatter", mine, numbers(group_.rank() * part, part, 0).mul(n).add(ranks_sum));
    whole.copy_(numbers(0, all, rank));
    group_.broadcast(whole, 0, "known numbers").wait();
    expect("broadcast", whole, numbers(0, all, 0));
  }

  void expect(std::string_view operation, const at::Tensor& got, const at::Tensor& wanted) const {
    const at::Tensor wrong = got.ne(wanted);
    const auto count = wrong.sum().item<std::int64_t>();
    if (count == 0) return;
    const auto first = wrong.to(at::kByte).argmax().item<std::int64_t>();
    throw base::run_error("bench",
                          "rank {}: {} of {} gave wrong numbers: {} of {} elements, the first at {} is {}, not {}. Numbers are changed on "
                          "their way between devices; NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 tell which way does it.",
                          group_.rank(), operation, base::human_bytes(static_cast<std::uint64_t>(got.numel()) * 4), count, got.numel(),
                          first, got[first].item<float>(), wanted[first].item<float>());
  }

  double slowest(double value) const {
    const auto number = at::full({1}, value, at::TensorOptions().device(device_).dtype(at::kDouble));
    group_.all_reduce(number, comm::Reduce::max, "slowest rank").wait();
    return number.cpu().item<double>();
  }

  double seconds_of(int calls, const std::function<void()>& work) const {
    group_.barrier("before timing");
    const std::int64_t start_ns = base::now_ns();
    for (int i = 0; i < calls; ++i) work();
    wait_for(device_);
    return slowest(base::seconds_since(start_ns) / calls);
  }

  CommResult time(const std::string& operation, std::int64_t bytes, const std::function<void()>& work) const {
    work();  // connections and buffers are made at the first call
    const double once = seconds_of(1, work);
    const int calls = std::clamp(static_cast<int>(std::ceil(seconds_a_case / std::max(once, 1e-7))), 1, most_calls);
    return {.operation = operation, .bytes = bytes, .seconds = seconds_of(calls, work), .calls = calls, .ranks = group_.size()};
  }

  const comm::Group& group_;
  at::Device device_;
  bool spoils_sums_;  // a test asked for wrong numbers (action=nan)
};

}  // namespace

double CommResult::bus_bandwidth() const {
  const double n = ranks;
  if (operation == "all_reduce") return algorithm_bandwidth() * 2 * (n - 1) / n;
  if (operation == "broadcast") return algorithm_bandwidth();
  return algorithm_bandwidth() * (n - 1) / n;
}

void measure_comm(const comm::World& world, const std::vector<std::int64_t>& sizes, bool json, const Sink& sink) {
  const CommBench bench(world);
  const std::int64_t budget = bench.budget(world.place());
  for (const std::int64_t size : sizes) {
    // whole, mine, and a backend's own copies of both
    if (4 * size > budget) {
      if (!json && world.place().rank == 0)
        sink(fmt::format("{} and above: left out, too little memory is free", base::human_bytes(static_cast<std::uint64_t>(size))));
      return;
    }
    for (const CommResult& result : bench.run(size)) {
      if (world.place().rank == 0) sink(json ? to_json(result) : to_text(result));
    }
  }
}

}  // namespace lockstep::bench
