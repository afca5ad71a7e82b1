// A rank is compared with the others in what might be the matter with it.
#include "front/monitor/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace lockstep::monitor {
namespace {

using journal::Part;
using launch::Throttle;

// What the readings say of a rank, on average.
struct Look {
  int rank = 0;
  double clock_mhz = 0, temperature = 0, starved = 0;
  double hot = 0, capped = 0;  // shares of the readings
  double others = 0;
  bool on_gpu = false;
  int gpu = 0;
};

bool holds(const launch::GpuReading& reading, std::initializer_list<Throttle> reasons) {
  if (!reading.throttled) return false;
  return std::any_of(reasons.begin(), reasons.end(), [&](Throttle one) {
    return std::find(reading.throttled->begin(), reading.throttled->end(), one) != reading.throttled->end();
  });
}

std::vector<Look> looks_at(const std::deque<Reading>& readings) {
  std::vector<Look> looks;
  const auto of = [&](int rank) -> Look& {
    const auto found = std::find_if(looks.begin(), looks.end(), [&](const Look& look) { return look.rank == rank; });
    return found != looks.end() ? *found : looks.emplace_back(Look{.rank = rank});
  };
  const double share = readings.empty() ? 0 : 1.0 / static_cast<double>(readings.size());
  for (const Reading& reading : readings) {
    for (const RankNow& now : reading.ranks) of(now.rank).starved += share * now.starved.value_or(0);
    for (const GpuNow& gpu : reading.gpus) {
      for (const int rank : gpu.ranks) {
        Look& look = of(rank);
        look.on_gpu = true;
        look.gpu = gpu.number;
        look.clock_mhz += share * gpu.reading.sm_clock_mhz.value_or(0);
        look.temperature += share * gpu.reading.temperature_c.value_or(0);
        look.hot +=
            share * (holds(gpu.reading, {Throttle::software_thermal, Throttle::hardware_thermal, Throttle::hardware_slowdown}) ? 1 : 0);
        look.capped += share * (holds(gpu.reading, {Throttle::power_cap, Throttle::power_brake}) ? 1 : 0);
        look.others += share * gpu.others;
      }
    }
  }
  return looks;
}

// The middle one of the others.
double others_have(const std::vector<Look>& looks, int rank, double Look::*what) {
  std::vector<double> values;
  for (const Look& look : looks) {
    if (look.rank != rank) values.push_back(look.*what);
  }
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

struct Finding {
  Reason reason;
  std::string words;
};

Finding look_closer(const journal::Straggler& found, const std::deque<Reading>& readings) {
  if (found.part == Part::data) return {Reason::data, "its batches come late. Look at its disk, or raise data.workers and data.prefetch"};
  if (found.part == Part::checkpoint) return {Reason::disk, "it saves more slowly. Look at its disk"};
  const std::vector<Look> looks = looks_at(readings);
  const auto mine = std::find_if(looks.begin(), looks.end(), [&](const Look& look) { return look.rank == found.rank; });
  if (mine == looks.end()) return {Reason::unknown, "its machine's monitor file says more"};
  const auto others = [&](double Look::*what) { return others_have(looks, found.rank, what); };
  if (mine->on_gpu) {
    if (mine->others >= 0.5 && mine->others > others(&Look::others) + 0.25)
      return {Reason::other_process, fmt::format("another process is on GPU {}. nvidia-smi names it", mine->gpu)};
    if (mine->hot > 0.3 && mine->hot > others(&Look::hot) + 0.2)
      return {Reason::temperature, fmt::format("GPU {} is throttled at {:.0f} C. Look at its cooling", mine->gpu, mine->temperature)};
    if (mine->capped > 0.3 && mine->capped > others(&Look::capped) + 0.2)
      return {Reason::power, fmt::format("GPU {} is held at its power limit. nvidia-smi -q -d POWER tells which", mine->gpu)};
    if (const double usual = others(&Look::clock_mhz); mine->clock_mhz > 0 && mine->clock_mhz < 0.95 * usual)
      return {Reason::clock, fmt::format("GPU {} runs at {:.0f} MHz, the others at {:.0f}", mine->gpu, mine->clock_mhz, usual)};
  }
  if (mine->starved > 0.1 && mine->starved > 1.5 * others(&Look::starved) + 0.05)
    return {Reason::cpu, fmt::format("it waits {:.0f}% of the time for a processor core that others use", 100 * mine->starved)};
  return {Reason::unknown, "nothing that is measured here tells why"};
}

}  // namespace

std::string_view name_of(Reason reason) {
  switch (reason) {
    case Reason::data: return "data";
    case Reason::clock: return "clock";
    case Reason::temperature: return "temperature";
    case Reason::power: return "power";
    case Reason::other_process: return "other_process";
    case Reason::cpu: return "cpu";
    case Reason::disk: return "disk";
    case Reason::unknown: return "unknown";
  }
  return "unknown";
}

void Stragglers::hear(const Reading& reading) {
  readings_.push_back(reading);
  while (readings_.size() > options_.readings_kept) readings_.pop_front();
}

std::optional<Verdict> Stragglers::hear(std::span<const journal::PartSeconds> ranks, double steps) {
  if (window_.size() != ranks.size()) window_.assign(ranks.size(), {}), window_steps_ = 0;
  double longest = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t part = 0; part < journal::part_count; ++part) window_[rank][part] += ranks[rank][part] * steps;
    longest = std::max(longest, journal::total(window_[rank]));
  }
  window_steps_ += steps;
  return longest < options_.window_s ? std::nullopt : judge();
}

std::optional<Verdict> Stragglers::judge() {
  for (journal::PartSeconds& rank : window_) {
    for (double& seconds : rank) seconds /= window_steps_;
  }
  const auto found = journal::find_straggler(window_);
  window_.clear();
  const std::optional<int> before = std::exchange(suspect_, found ? std::optional(found->rank) : std::nullopt);
  if (!found) {
    if (!before) told_.reset();  // two quiet windows: it is over
    return std::nullopt;
  }
  if (before != suspect_) return std::nullopt;
  Verdict verdict = verdict_of(*found);
  if (told_ == std::pair(found->rank, verdict.reason)) return std::nullopt;
  told_ = {found->rank, verdict.reason};
  return verdict;
}

Verdict Stragglers::verdict_of(const journal::Straggler& found) const {
  Finding finding = look_closer(found, readings_);
  return {found, finding.reason,
          fmt::format("rank {} holds the others up by {:.0f} ms a step ({:.0f}%), in {}: {}.", found.rank, 1000 * found.seconds,
                      100 * found.share, journal::describe(found.part), finding.words)};
}

}  // namespace lockstep::monitor
