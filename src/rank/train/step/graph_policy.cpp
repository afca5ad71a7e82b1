// Counts micro-steps by shape.
#include "rank/train/step/graph_policy.h"

namespace lockstep::train {

GraphPolicy::Answer GraphPolicy::before(MicroKind kind, const std::vector<std::int64_t>& shape, bool recordable) {
  if (kind == MicroKind::adds) accumulates_ = true;
  if (!is_warm(shape)) return {};
  Answer answer{.may_replay = true};
  if (agreed_) return answer;
  if (kind == MicroKind::adds) {
    answer.record_adding = true;
  } else if (recordable) {
    answer.record_adding = accumulates_;
    answer.record_reducing = agreed_ = true;
  }
  return answer;
}

bool GraphPolicy::is_warm(const std::vector<std::int64_t>& shape) {
  if (!wanted_ || shape.empty()) return false;
  if (shape != shape_) {
    if (of_this_shape_ >= warm_up_) return false;
    shape_ = shape;
    of_this_shape_ = 0;
  }
  if (of_this_shape_ >= warm_up_) return true;
  ++of_this_shape_;
  return false;
}

}  // namespace lockstep::train
