// Whoever is at work longest is waited for: a rank that waits for nobody has no time to spare.
#include "journal/parts.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep::journal {
namespace {

// The lower one of two in the middle: of two ranks the quicker one is the measure.
template <typename Value>
double middle(std::span<const PartSeconds> ranks, Value value) {
  std::vector<double> values;
  for (const PartSeconds& rank : ranks) values.push_back(value(rank));
  const auto half = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

}  // namespace

std::string_view name_of(Part part) {
  switch (part) {
    case Part::data: return "data";
    case Part::forward: return "forward";
    case Part::backward: return "backward";
    case Part::communication: return "communication";
    case Part::optimizer: return "optimizer";
    case Part::checkpoint: return "checkpoint";
    case Part::other: return "other";
  }
  return "other";
}

std::string_view describe(Part part) {
  switch (part) {
    case Part::data: return "reading data";
    case Part::forward: return "the forward pass";
    case Part::backward: return "the backward pass";
    case Part::communication: return "communication";
    case Part::optimizer: return "the update";
    case Part::checkpoint: return "saving";
    case Part::other: return "what lies between steps";
  }
  return "what lies between steps";
}

double total(const PartSeconds& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double at_work(const PartSeconds& seconds) { return total(seconds) - of(seconds, Part::communication); }

std::optional<Straggler> find_straggler(std::span<const PartSeconds> ranks) {
  if (ranks.size() < 2) return std::nullopt;
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(), [](const PartSeconds& a, const PartSeconds& b) { return at_work(a) < at_work(b); });
  const double step = total(*slowest);
  Straggler found{.rank = static_cast<int>(slowest - ranks.begin()), .seconds = at_work(*slowest) - middle(ranks, at_work)};
  found.share = step > 0 ? found.seconds / step : 0;
  if (found.share < straggler_share) return std::nullopt;
  double most = 0;
  for (const Part part : all_parts) {
    const double more = of(*slowest, part) - middle(ranks, [part](const PartSeconds& rank) { return of(rank, part); });
    if (part == Part::communication || more <= most) continue;
    most = more;
    found.part = part;
  }
  return found;
}

}  // namespace lockstep::journal
