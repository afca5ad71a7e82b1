// One mutex, one condition: both sides wake each other some times a save.
#include "rank/checkpoint/handover.h"

#include <utility>

#include "base/error.h"

namespace lockstep::checkpoint {

bool Handover::wait_for_room() {
  base::Lock lock(mutex_);
  changed_.wait(lock, [this]() LOCKSTEP_REQUIRES(mutex_) { return closed_ || given_ - written_ < buffers; });
  return !closed_;
}

void Handover::give(std::vector<StagedRange> turn) {
  const base::Lock lock(mutex_);
  waiting_.push_back(std::move(turn));
  ++given_;
  changed_.notify_all();
}

void Handover::fail(std::string reason) {
  const base::Lock lock(mutex_);
  failure_ = std::move(reason);
  changed_.notify_all();
}

std::vector<StagedRange> Handover::take() {
  base::Lock lock(mutex_);
  written_ = taken_;
  changed_.notify_all();
  changed_.wait(lock, [this]() LOCKSTEP_REQUIRES(mutex_) { return failure_ || !waiting_.empty(); });
  if (failure_) throw base::checkpoint_error("checkpoint", "{}", *failure_);
  std::vector<StagedRange> turn = std::move(waiting_.front());
  waiting_.pop_front();
  ++taken_;
  return turn;
}

void Handover::close() {
  const base::Lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace lockstep::checkpoint
