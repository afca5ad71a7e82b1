// Pure functions over pages; the supervisor calls them a few times a second.
#include "front/launch/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"

namespace lockstep::launch {
namespace {

using journal::Operation;
using journal::OperationState;
using journal::PageView;
using journal::Phase;
using journal::ProcessState;

double seconds_between(std::int64_t from_ns, std::int64_t to_ns) { return static_cast<double>(to_ns - from_ns) * 1e-9; }

std::string spelled(std::span<const int> ranks) {
  return ranks.size() == 1 ? name_ranks(ranks) : fmt::format("{} ranks ({})", ranks.size(), list_ranks(ranks));
}

}  // namespace

std::string list_ranks(std::span<const int> ranks) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (last - i >= 2) {
      parts.push_back(fmt::format("{}-{}", sorted[i], sorted[last]));
    } else {
      for (std::size_t k = i; k <= last; ++k) parts.push_back(std::to_string(sorted[k]));
    }
    i = last + 1;
  }
  if (parts.size() < 2) return parts.empty() ? "none" : parts[0];
  return base::join(std::span(parts).first(parts.size() - 1), ", ") + " and " + parts.back();
}

std::string name_ranks(std::span<const int> ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + list_ranks(ranks); }

const Operation* waits_in(const PageView& page) {
  for (const auto& operation : page.operations) {
    if (operation.state == OperationState::waited_for) return &operation;
  }
  if (page.phase != Phase::reducing) return nullptr;
  for (const auto& operation : page.operations) {
    if (operation.state == OperationState::issued) return &operation;
  }
  return nullptr;
}

std::string describe(const Operation& operation) {
  const std::string group = std::string_view(operation.group) == "world" ? "" : fmt::format(" of group {}", operation.group);
  return fmt::format("{} {}{}{}{}", operation.kind, operation.sequence, group, operation.what[0] != '\0' ? ", " : "", operation.what);
}

namespace {

bool is_held(const PageView& page) { return page.process == ProcessState::stopped || page.process == ProcessState::gone; }

std::string what_it_does(const PageView& page, std::int64_t now_ns) {
  if (page.phase == Phase::done) return "has finished";
  if (page.process == ProcessState::stopped) return fmt::format("is stopped (process {} is in state T)", page.pid);
  if (page.process == ProcessState::gone) return fmt::format("is gone (there is no process {} any more)", page.pid);
  const std::string doing = fmt::format("is {} since {:.0f} s", describe(page.phase), seconds_between(page.phase_since_ns, now_ns));
  if (page.process != ProcessState::uninterruptible) return doing;
  return fmt::format("{}, in uninterruptible sleep (process {} is in state D)", doing, page.pid);
}

std::vector<std::string> advice_for(std::span<const PageView> pages) {
  std::vector<std::string> lines;
  for (const auto& page : pages) {
    if (page.phase == Phase::done) continue;
    if (page.process == ProcessState::stopped) {
      lines.push_back(fmt::format("SIGSTOP, Ctrl-Z, a debugger or a scheduler's suspend has stopped rank {}: `kill -CONT {}` lets it go on",
                                  page.rank, page.pid));
    } else if (page.process == ProcessState::uninterruptible) {
      lines.push_back(
          fmt::format("rank {} waits within the kernel for a disk, a network file system or a driver that does not answer: "
                      "`dmesg | tail`, and as root `cat /proc/{}/stack`, say more",
                      page.rank, page.pid));
    }
  }
  return lines;
}

}  // namespace

std::string who_does_what(std::span<const PageView> pages, std::int64_t now_ns) {
  std::map<std::string, std::vector<int>> waiting;
  std::vector<std::string> parts;
  for (const auto& page : pages) {
    const Operation* operation = waits_in(page);
    if (operation != nullptr && !is_held(page)) {
      waiting[describe(*operation)].push_back(static_cast<int>(page.rank));
    } else {
      parts.push_back(fmt::format("rank {} {}", page.rank, what_it_does(page, now_ns)));
    }
  }
  for (const auto& [operation, ranks] : waiting)
    parts.push_back(fmt::format("{} {} in {}", spelled(ranks), ranks.size() == 1 ? "waits" : "wait", operation));
  return base::join(parts, "; ");
}

std::optional<Stall> find_stall(std::span<const PageView> pages, std::int64_t now_ns, double stall_seconds) {
  std::int64_t newest = 0;
  std::vector<int> causes, held;
  bool others_work = false, disk_may_answer = false;
  const auto is_stopped = [](const PageView& page) { return page.process == ProcessState::stopped; };
  // What may take long is at the disk again and again; here one wait for it has lasted for so long.
  const auto is_asleep = [&](const PageView& page) {
    return page.process == ProcessState::uninterruptible && may_take_long(page.phase) && page.phase != Phase::done &&
           waits_in(page) == nullptr && seconds_between(page.process_since_ns, now_ns) >= stall_seconds;
  };
  const bool one_is_stuck =
      std::any_of(pages.begin(), pages.end(), [&](const PageView& page) { return is_stopped(page) || is_asleep(page); });
  for (const auto& page : pages) {
    if (page.phase == Phase::done) continue;  // it may sleep; what others wait for may be just this
    const bool stuck = is_stopped(page) || is_asleep(page);
    const bool waits = waits_in(page) != nullptr;
    // What takes long goes on by itself; not so in a process that is stuck, nor for those who wait for it.
    if (may_take_long(page.phase) && !stuck && !(waits && one_is_stuck)) {
      if (!one_is_stuck) return std::nullopt;
      others_work = true;
      continue;
    }
    newest = std::max(newest, may_take_long(page.phase) && stuck ? page.process_since_ns : page.progress_ns);
    if (!waits) causes.push_back(static_cast<int>(page.rank));
    if (is_held(page) || is_asleep(page)) held.push_back(static_cast<int>(page.rank));
    disk_may_answer = disk_may_answer || is_asleep(page);
  }
  if (!held.empty()) causes = held;
  if (newest == 0) return std::nullopt;
  const double seconds = seconds_between(newest, now_ns);
  if (seconds < stall_seconds) return std::nullopt;
  if (causes.empty()) {  // all wait: those that left, or those that are behind the others
    for (const auto& page : pages) {
      if (page.phase == Phase::done) causes.push_back(static_cast<int>(page.rank));
    }
  }
  return Stall{seconds, who_does_what(pages, now_ns), causes, advice_for(pages), !others_work && !disk_may_answer};
}

std::optional<Mismatch> find_mismatch(std::span<const PageView> pages) {
  using Call = std::tuple<std::string, std::string, std::uint64_t>;  // kind, what, bytes
  using Key = std::pair<std::string, std::uint64_t>;                 // group, sequence
  std::map<Key, std::map<Call, std::vector<int>>> calls;
  std::map<Key, std::int64_t> first_issued;
  for (const auto& page : pages) {
    for (const auto& operation : page.operations) {
      const std::string kind = operation.kind;
      if (kind == "send" || kind == "recv") continue;  // two ends of one transfer are not the same call
      const Key key(operation.group, operation.sequence);
      calls[key][Call(kind, operation.what, operation.bytes)].push_back(static_cast<int>(page.rank));
      auto& issued = first_issued.try_emplace(key, operation.issued_ns).first->second;
      issued = std::min(issued, operation.issued_ns);
    }
  }
  const Key* worst = nullptr;
  for (const auto& [key, variants] : calls) {
    if (variants.size() > 1 && (worst == nullptr || first_issued[key] < first_issued[*worst])) worst = &key;
  }
  if (worst == nullptr) return std::nullopt;

  std::vector<std::pair<Call, std::vector<int>>> variants(calls[*worst].begin(), calls[*worst].end());
  std::sort(variants.begin(), variants.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
  });
  std::vector<std::string> parts;
  std::vector<int> odd_ones;
  for (const auto& [call, ranks] : variants) {
    const auto& [kind, what, bytes] = call;
    parts.push_back(fmt::format("{} entered {} of {} bytes{}", name_ranks(ranks), kind, bytes, what.empty() ? "" : " (" + what + ")"));
  }
  for (std::size_t i = 0; i + 1 < variants.size(); ++i)
    odd_ones.insert(odd_ones.end(), variants[i].second.begin(), variants[i].second.end());
  return Mismatch{fmt::format("ranks disagree on operation {} of group {}: {}", worst->second, worst->first, base::join(parts, "; ")),
                  odd_ones};
}

}  // namespace lockstep::launch
