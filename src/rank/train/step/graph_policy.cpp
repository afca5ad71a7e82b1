// Counts micro-steps by place. Of more places than are kept, one gives way that was not used for long: recording costs as much as many
// launches save, so shapes that take turns must not drive each other out.
#include "rank/train/step/graph_policy.h"

#include <algorithm>

namespace lockstep::train {
namespace {

constexpr std::size_t kMostWatched = 64;  // places that are counted without being recorded

}  // namespace

GraphPolicy::Answer GraphPolicy::before(const GraphKey& key, bool recordable) {
  if (key.action == GraphAction::adds) accumulates_ = true;
  if (!options_.wanted || key.place.shape.empty()) return {};
  ++now_;
  Seen& seen = look_up(key.place);
  Answer answer;
  answer.may_replay = is_warm(seen, answer);
  if (!answer.may_replay || seen.agreed) return answer;
  if (key.action == GraphAction::adds) {
    answer.record_adding = true;
  } else if (recordable) {
    answer.record_adding = accumulates_;
    answer.record_reducing = seen.agreed = true;
  }
  return answer;
}

GraphPolicy::Seen& GraphPolicy::look_up(const GraphPlace& place) {
  const auto found = std::find_if(seen_.begin(), seen_.end(), [&](const Seen& one) { return one.place == place; });
  if (found != seen_.end()) return *found;
  if (seen_.size() >= kMostWatched + options_.most_kept) {
    // Kept ones last: there are always some that are not.
    seen_.erase(std::min_element(seen_.begin(), seen_.end(),
                                 [](const Seen& a, const Seen& b) { return a.kept != b.kept ? b.kept : a.last < b.last; }));
  }
  return seen_.emplace_back(Seen{.place = place});
}

bool GraphPolicy::is_warm(Seen& seen, Answer& answer) {
  seen.last = now_;
  if (seen.kept) return true;
  if (std::ssize(seen.uses) >= options_.warm_up && make_room_for(seen, answer)) {
    seen.uses.clear();
    return seen.kept = true;
  }
  seen.uses.push_back(now_);
  if (std::ssize(seen.uses) > std::max(options_.warm_up, options_.patience)) seen.uses.erase(seen.uses.begin());
  return false;
}

bool GraphPolicy::make_room_for(const Seen& seen, Answer& answer) {
  const auto kept = std::count_if(seen_.begin(), seen_.end(), [](const Seen& one) { return one.kept; });
  if (static_cast<std::size_t>(kept) < options_.most_kept) return true;
  Seen* oldest = nullptr;
  for (Seen& one : seen_)
    if (one.kept && (oldest == nullptr || one.last < oldest->last)) oldest = &one;
  if (oldest == nullptr || std::ssize(seen.uses) < options_.patience || oldest->last > seen.uses.front()) return false;
  answer.forget = oldest->place;
  oldest->kept = oldest->agreed = false;
  return true;
}

void GraphPolicy::start_over() {
  for (Seen& one : seen_) one.agreed = false;
}

}  // namespace lockstep::train
