// When micro-steps become CUDA graphs, and which graphs are kept. Counting alone, so that ranks that see the same shapes come to the same
// answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::train {

// What one graph holds of the schedule: forward and backward of a micro-batch, joined. Its gradients are added up, or, at the end of a
// step, reduced over ranks as they get complete.
enum class GraphAction { adds, reduces };

// Whose graphs share the buffers that batches are copied into.
struct GraphPlace {
  std::size_t flight = 0;
  std::vector<std::int64_t> shape = {};  // of the batch; empty where such a batch cannot be recorded

  bool operator==(const GraphPlace&) const = default;
};

struct GraphKey {
  GraphAction action = GraphAction::adds;
  GraphPlace place = {};
  bool first = false;  // of a step, where that one differs from those behind it: its gathers do

  std::size_t index() const { return static_cast<std::size_t>(action) + (first ? 2 : 0); }
};

class GraphPolicy {
 public:
  struct Options {
    bool wanted = false;         // graphs, whether or not they turn out to be possible
    std::int64_t warm_up = 3;    // micro-steps of one shape before it is recorded, in which whatever is done lazily gets done
    std::size_t most_kept = 16;  // places whose graphs live beside each other
    std::int64_t patience = 16;  // uses of a place in which another one's graphs were not, before it takes their room
  };
  explicit GraphPolicy(const Options& options) : options_(options) {}

  struct Answer {
    bool may_replay = false;                // the place is one that is recorded
    bool record_adding = false;             // first
    bool record_reducing = false;           // then, and all ranks agree whether it worked
    std::optional<GraphPlace> forget = {};  // before that: its graphs make room
  };
  // Before every micro-step. recordable: its reduction can be recorded, and all ranks ask for the same places in the same order.
  // The graph that reduces comes last, because whatever may fail on one rank must come before all agree: later it would take this rank's
  // reduction along and leave the others to launch theirs alone.
  Answer before(const GraphKey& key, bool recordable);

  bool wanted() const { return options_.wanted; }
  // Recordings are gone, on this rank or another: the next micro-step of each place makes them anew.
  void start_over();

 private:
  struct Seen {
    GraphPlace place;
    std::vector<std::int64_t> uses = {};  // the latest ones while it is not kept, as many as patience at most
    std::int64_t last = 0;                // use
    bool kept = false;                    // its graphs are
    bool agreed = false;                  // ranks have agreed about the graph that reduces: nothing more of it is recorded
  };
  Seen& look_up(const GraphPlace& place);
  bool is_warm(Seen& seen, Answer& answer);
  bool make_room_for(const Seen& seen, Answer& answer);

  const Options options_;
  std::vector<Seen> seen_;
  std::int64_t now_ = 0;      // micro-steps so far
  bool accumulates_ = false;  // some micro-steps only add
};

}  // namespace lockstep::train
