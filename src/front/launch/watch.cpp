// Pure functions over pages; the supervisor calls them a few times a second.
#include "front/launch/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"

namespace lockstep::launch {
namespace {

using record::Operation;
using record::OperationState;
using record::PageView;
using record::Phase;

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

std::string who_does_what(std::span<const PageView> pages, std::int64_t now_ns) {
  std::map<std::string, std::vector<int>> waiting;
  std::vector<std::string> parts;
  for (const auto& page : pages) {
    if (const Operation* operation = waits_in(page)) {
      waiting[describe(*operation)].push_back(static_cast<int>(page.rank));
    } else if (page.phase == Phase::done) {
      parts.push_back(fmt::format("rank {} has finished", page.rank));
    } else {
      parts.push_back(
          fmt::format("rank {} is {} since {:.0f} s", page.rank, describe(page.phase), seconds_between(page.phase_since_ns, now_ns)));
    }
  }
  for (const auto& [operation, ranks] : waiting)
    parts.push_back(fmt::format("{} {} in {}", spelled(ranks), ranks.size() == 1 ? "waits" : "wait", operation));
  return base::join(parts, "; ");
}

std::optional<Stall> find_stall(std::span<const PageView> pages, std::int64_t now_ns, double stall_seconds) {
  std::int64_t newest = 0;
  std::vector<int> causes;
  for (const auto& page : pages) {
    if (page.phase == Phase::done) continue;  // it may sleep; what others wait for may be just this
    if (may_take_long(page.phase)) return std::nullopt;
    newest = std::max(newest, page.progress_ns);
    if (waits_in(page) == nullptr) causes.push_back(static_cast<int>(page.rank));
  }
  if (newest == 0) return std::nullopt;
  const double seconds = seconds_between(newest, now_ns);
  if (seconds < stall_seconds) return std::nullopt;
  if (causes.empty()) {  // all wait: those that left, or those that are behind the others
    for (const auto& page : pages) {
      if (page.phase == Phase::done) causes.push_back(static_cast<int>(page.rank));
    }
  }
  return Stall{seconds, who_does_what(pages, now_ns), causes};
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
