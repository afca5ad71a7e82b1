// When micro-steps become CUDA graphs. Counting alone, so that every rank comes to the same answer.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::train {

// What a micro-step does with its gradients: adds them up, or, at the end of a step, has them reduced over ranks as they get complete.
enum class MicroKind { adds, reduces };

class GraphPolicy {
 public:
  // wanted: graphs, whether or not they turn out to be possible. warm_up: micro-steps of one shape before it is recorded, in which
  // whatever is done lazily gets done.
  GraphPolicy(bool wanted, std::int64_t warm_up) : wanted_(wanted), warm_up_(warm_up) {}

  struct Answer {
    bool may_replay = false;       // the micro-step has the shape that is recorded
    bool record_adding = false;    // first
    bool record_reducing = false;  // then, and all ranks agree whether it worked
  };
  // Before every micro-step. shape: of its batch; empty where such a batch cannot be recorded. recordable: its reduction can be.
  // One shape is recorded: another one now and then is not worth its memory. The graph that reduces comes last, because whatever may fail
  // on one rank must come before all agree: later it would take this rank's reduction along and leave the others to launch theirs alone.
  Answer before(MicroKind kind, const std::vector<std::int64_t>& shape, bool recordable);

  bool wanted() const { return wanted_; }
  // Recordings are gone, on this rank or another: the next micro-step of their shape makes them anew.
  void start_over() { agreed_ = false; }

 private:
  bool is_warm(const std::vector<std::int64_t>& shape);

  const bool wanted_;
  const std::int64_t warm_up_;
  std::vector<std::int64_t> shape_;  // of the batches that came last, or that are recorded
  std::int64_t of_this_shape_ = 0;   // micro-steps so far
  bool accumulates_ = false;         // some micro-steps only add
  bool agreed_ = false;              // ranks have agreed about the graph that reduces: nothing more is recorded
};

}  // namespace lockstep::train
