// Drives LibTorch's profiler (Kineto, with CUPTI on a GPU) and adds its events up by name.
#include "rank/train/watch/profile.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t untraced_steps = 5;

torch::profiler::impl::ProfilerConfig profiler_config() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO);
}
std::set<torch::profiler::impl::ActivityType> activities(at::Device device) {
  std::set<torch::profiler::impl::ActivityType> kinds{torch::profiler::impl::ActivityType::CPU};
  if (device.is_cuda()) kinds.insert(torch::profiler::impl::ActivityType::CUDA);
  return kinds;
}

// Named ranges (of blocks, the head) on the host and on the device; they span kernels, so they are added up apart. Kineto's numbers.
bool is_range(const torch::autograd::profiler::KinetoEvent& event) {
  constexpr std::uint8_t user_annotation = 1, gpu_user_annotation = 2;
  return event.activityType() == user_annotation || event.activityType() == gpu_user_annotation;
}

struct Line {
  std::uint64_t nanoseconds = 0;
  std::int64_t calls = 0;
};

// On a GPU the kernels; on a CPU the operators (ours run inside the named ranges).
std::string table_of(const torch::autograd::profiler::ProfilerResult& result, at::Device device, std::int64_t steps) {
  std::map<std::string, Line> by_name, ranges;
  std::uint64_t total = 0, first = UINT64_MAX, last = 0;
  for (const auto& event : result.events()) {
    if (event.deviceType() != device.type()) continue;
    Line& line = (is_range(event) ? ranges : by_name)[event.name().substr(0, 110)];
    line.nanoseconds += event.durationNs();
    line.calls += 1;
    if (is_range(event)) continue;
    total += event.durationNs();
    first = std::min(first, event.startNs());
    last = std::max(last, event.endNs());
  }
  const auto sorted = [](const std::map<std::string, Line>& named) {
    std::vector<std::pair<std::string, Line>> lines(named.begin(), named.end());
    std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
    return lines;
  };
  const double per_step = 1e-6 / static_cast<double>(steps);
  std::string text = fmt::format("{} steps on {}: {:.2f} ms a step from first to last event, {:.2f} ms added up\n\n{:>9} {:>6} {:>7}  {}\n",
                                 steps, device.str(), static_cast<double>(last - std::min(first, last)) * per_step,
                                 static_cast<double>(total) * per_step, "ms/step", "share", "calls", "name");
  const auto add = [&](const auto& lines) {
    for (const auto& [name, line] : lines) {
      text += fmt::format("{:9.3f} {:5.1f}% {:7.1f}  {}\n", static_cast<double>(line.nanoseconds) * per_step,
                          100.0 * static_cast<double>(line.nanoseconds) / static_cast<double>(std::max<std::uint64_t>(total, 1)),
                          static_cast<double>(line.calls) / static_cast<double>(steps), name);
    }
  };
  add(sorted(by_name));
  text += "\nby range\n";
  add(sorted(ranges));
  return text;
}

}  // namespace

Trace::~Trace() {
  if (running_) torch::autograd::profiler::disableProfiler();
}

void Trace::start() {
  torch::autograd::profiler::prepareProfiler(profiler_config(), activities(device_));
  torch::autograd::profiler::enableProfiler(profiler_config(), activities(device_));
  running_ = true;
}

std::string Trace::stop(const std::filesystem::path& stem, std::int64_t steps) {
  base::check(running_, "a trace is stopped once, after it was started");
  // The host is ahead: what the device has not run yet would be missing. Reductions and offloaded activations have streams of their own.
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  running_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  std::filesystem::create_directories(stem.parent_path());
  result->save(stem.string() + ".json");
  std::string table = table_of(*result, device_, steps);
  base::write_text_atomically(base::real_files(), stem.string() + ".txt", table);
  return table;
}

Profile::Profile(std::int64_t steps, std::filesystem::path folder, int rank, at::Device device)
    : steps_(steps), folder_(std::move(folder)), rank_(rank), trace_(device) {}

void Profile::before_step(std::int64_t) {
  if (steps_ == 0) return;
  if (seen_ == untraced_steps) trace_.start();
  if (seen_ == untraced_steps + steps_) stop();
  ++seen_;
}

void Profile::stop() {
  if (!trace_.running()) return;
  const auto stem = folder_ / fmt::format("rank-{}", rank_);
  const std::int64_t traced = std::min(steps_, seen_ - untraced_steps);
  try {
    trace_.stop(stem, std::max<std::int64_t>(traced, 1));
  } catch (const std::exception& error) {
    return base::log_warning("the trace {} was not written: {}", stem.string(), error.what());
  }
  base::log_info("traced {} steps: {}.json (open in ui.perfetto.dev) and {}.txt", traced, stem.string(), stem.string());
}

}  // namespace lockstep::train
