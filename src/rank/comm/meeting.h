// Where ranks wait for each other for as long as it takes: through the store, so that no collective's deadline runs meanwhile.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>

namespace c10d {
class Store;
}  // namespace c10d

namespace lockstep::comm {

// Made on every rank of a group. While it lives a thread of its own gives a sign of life every few seconds, whatever the others do.
class MeetingPoint {
 public:
  virtual ~MeetingPoint() = default;
  // Returns when every rank has come to this meeting. Meetings are numbered, the same on all ranks. There is no deadline: whether a rank
  // that keeps the others waiting is at work or stuck is for the launcher to judge, which sees its page and its process. Only a rank that
  // has given no sign of life for long ends the wait, with an exception that names it: its machine is gone, and no launcher sees it.
  virtual void meet(std::uint64_t number) = 0;
};

std::shared_ptr<MeetingPoint> make_meeting_point(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double silence_s);

}  // namespace lockstep::comm
