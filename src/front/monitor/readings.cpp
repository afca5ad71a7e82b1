// From /proc and the driver.
#include "front/monitor/readings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "front/launch/devices/devices.h"

namespace lockstep::monitor {
namespace {

constexpr std::int64_t pcie_every = 5;  // reads: the driver counts for 40 ms a GPU, on this thread

// Fields of /proc/PID/stat behind the name: utime and stime are 14 and 15 of proc(5), rss is 24; the state is 3.
constexpr std::size_t user_field = 11, system_field = 12, resident_field = 21;

template <typename Value>
Value& of(std::vector<std::pair<int, Value>>& list, int key) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.first == key; });
  return found != list.end() ? found->second : list.emplace_back(key, Value{}).second;
}

double rate(double now, double before, std::int64_t now_ns, std::int64_t before_ns) {
  const double seconds = static_cast<double>(now_ns - before_ns) * 1e-9;
  return seconds > 0 ? std::max(0.0, now - before) / seconds : 0;
}

// Of the main thread: seconds in which it could have run and did not.
std::optional<double> starved_seconds(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/schedstat", pid));
  double ran_ns = 0, waited_ns = 0;
  if (!(file >> ran_ns >> waited_ns)) return std::nullopt;
  return waited_ns * 1e-9;
}

}  // namespace

std::vector<UsedGpu> used_gpus(const launch::Nvml& nvml, const std::vector<RankProcess>& ranks, const std::optional<std::string>& visible) {
  std::vector<UsedGpu> used;
  std::vector<launch::Gpu> installed;
  for (int i = 0; i < nvml.count(); ++i) {
    const launch::GpuFacts facts = nvml.facts(i);
    installed.push_back({.index = facts.index, .name = facts.name, .uuid = facts.uuid, .memory_bytes = facts.memory_bytes.value_or(0)});
  }
  const auto chosen = launch::visible_gpus(installed, visible);
  for (const RankProcess& rank : ranks) {
    if (!rank.device.starts_with("cuda:")) continue;
    const auto slot = base::parse_integer(rank.device.substr(5));
    if (!slot || *slot < 0 || *slot >= std::ssize(chosen)) continue;
    const launch::Gpu& gpu = chosen[static_cast<std::size_t>(*slot)].gpu;
    auto found = std::find_if(used.begin(), used.end(), [&](const UsedGpu& one) { return one.number == gpu.index; });
    if (found == used.end()) {
      UsedGpu& fresh = used.emplace_back(
          UsedGpu{.number = gpu.index, .ranks = {}, .name = gpu.name, .uuid = gpu.uuid, .memory_bytes = {}, .max_clock_mhz = {}});
      for (int i = 0; i < nvml.count(); ++i) {
        const launch::GpuFacts facts = nvml.facts(i);
        if (facts.index != gpu.index) continue;
        fresh.memory_bytes = facts.memory_bytes;
        fresh.max_clock_mhz = facts.sm_clock_max_mhz;
      }
      found = used.end() - 1;
    }
    found->ranks.push_back(rank.rank);
  }
  return used;
}

Reading Reader::read(const std::vector<RankProcess>& ranks, const std::vector<UsedGpu>& gpus) {
  if (begun_ns_ == 0) begun_ns_ = base::now_ns();
  Reading reading{.seconds = base::seconds_since(begun_ns_), .gpus = {}, .ranks = {}};
  for (const RankProcess& rank : ranks) reading.ranks.push_back(read_process(rank));
  for (int handle = 0; nvml_ && handle < nvml_->count(); ++handle) {
    const int number = nvml_->facts(handle).index;
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const UsedGpu& one) { return one.number == number; });
    if (gpu != gpus.end()) reading.gpus.push_back(read_gpu(*gpu, handle));
  }
  ++reads_;
  return reading;
}

RankNow Reader::read_process(const RankProcess& process) {
  RankNow now{.rank = process.rank, .cpu = {}, .starved = {}, .memory_bytes = {}, .phase = {}};
  const auto fields = base::process_stat(process.pid);
  if (fields.size() <= resident_field) return now;
  const auto number = [&](std::size_t field) { return static_cast<double>(base::parse_integer(fields[field]).value_or(0)); };
  const Counters fresh{.pid = process.pid,
                       .at_ns = base::now_ns(),
                       .cpu_s = (number(user_field) + number(system_field)) / static_cast<double>(::sysconf(_SC_CLK_TCK)),
                       .starved_s = starved_seconds(process.pid).value_or(0)};
  now.memory_bytes = static_cast<std::uint64_t>(number(resident_field)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const Counters before = std::exchange(of(processes_, process.rank), fresh);
  if (before.pid != process.pid) return now;
  now.cpu = rate(fresh.cpu_s, before.cpu_s, fresh.at_ns, before.at_ns);
  now.starved = std::min(1.0, rate(fresh.starved_s, before.starved_s, fresh.at_ns, before.at_ns));
  return now;
}

GpuNow Reader::read_gpu(const UsedGpu& gpu, int handle) {
  GpuNow now{.number = gpu.number,
             .ranks = gpu.ranks,
             .reading = nvml_->read(handle, {.pcie_traffic = reads_ % pcie_every == 0}),
             .nvlink_sent_per_s = {},
             .nvlink_received_per_s = {}};
  // Pids are the driver's, which a container counts otherwise: how many there are is the same everywhere.
  now.others = std::max(0, static_cast<int>(std::ssize(nvml_->processes(handle)) - std::ssize(gpu.ranks)));
  if (now.reading.nvlink_sent_bytes && now.reading.nvlink_received_bytes) {
    const Traffic fresh{base::now_ns(), *now.reading.nvlink_sent_bytes, *now.reading.nvlink_received_bytes};
    const Traffic before = std::exchange(of(links_, gpu.number), fresh);
    if (before.at_ns != 0) {
      now.nvlink_sent_per_s = rate(static_cast<double>(fresh.sent), static_cast<double>(before.sent), fresh.at_ns, before.at_ns);
      now.nvlink_received_per_s =
          rate(static_cast<double>(fresh.received), static_cast<double>(before.received), fresh.at_ns, before.at_ns);
    }
  }
  return now;
}

}  // namespace lockstep::monitor
