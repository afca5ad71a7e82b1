// Gradients of units that ranks hold in shards: every rank gets the sum of its own share, in rank order, while backward still runs.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/comm/comm.h"
#include "rank/model/weights/store.h"
#include "rank/parallel/cut_unit.h"

namespace lockstep::parallel {

// Where shards of gradients are kept, every micro-batch is reduced and added to them in f32. Where gradients are whole until the step's
// end, only the last one is.
//
// One thread, the device's current stream. Units and groups must outlive it.
class ShardReduction {
 public:
  struct Groups {
    const comm::Group& shards;    // ranks that hold the unit between them; not the group that gathers
    const comm::Group& replicas;  // ranks that hold the same shard
  };
  ShardReduction(const Groups& groups, std::vector<std::optional<CutUnit>> units, const config::ParallelConfig& options,
                 bool every_micro_batch);

  // As the store hears it from layers. Collective.
  void open(std::size_t unit, const model::Pass& pass);
  void complete(std::size_t unit, std::size_t leaf);
  void close(std::size_t unit, const model::Pass& pass);

  // The micro-batch that comes is the step's last.
  void arm() { armed_ = true; }
  // Collective. In place of arm(), where whole gradients stand already.
  void start_all();
  // Collective. Waits for all.
  void finish();
  // From here on what is complete takes the memory that its reduction would, and goes nowhere; or everything is reduced again, as if
  // nothing had been.
  void rehearse(bool on);

  // What is under way is added, and this micro-batch is over.
  void settle_all();
  // Which units hold sums of this step's earlier micro-batches; nothing where one is under way.
  std::optional<std::vector<bool>> books() const;
  void set_books(const std::vector<bool>& holds);

  struct Count {
    std::int64_t reductions = 0, bytes = 0;  // that this rank received from others
  };
  const Count& count() const { return count_; }
  void set_count(const Count& count) { count_ = count; }

 private:
  struct Entry {
    std::optional<CutUnit> what;
    std::vector<bool> ready;  // by leaf, of this micro-batch
    bool started = false;     // of this micro-batch
    bool last = false;        // what is under way is of the step's last micro-batch
    bool holds = false;       // sums of this step's earlier micro-batches
    comm::Work work = {};
    at::Tensor sent, sum;  // while it is under way
  };
  bool reduces() const { return rehearsing_ || every_micro_batch_ || armed_; }
  void begin(std::int64_t micro);
  void start(Entry& entry);
  void settle(Entry& entry);
  void sum_between_replicas(const model::Unit& unit);
  void start_incomplete(Entry& entry);
  at::ScalarType wire_of(const model::Unit& unit) const;

  Groups groups_;
  config::ParallelConfig options_;
  bool every_micro_batch_, armed_ = false, rehearsing_ = false;
  std::optional<std::int64_t> micro_;  // whose backward is running
  std::vector<Entry> entries_;
  std::vector<std::size_t> slots_;  // whose gradients each has, or had last
  std::vector<Entry*> under_way_;   // the oldest first
  std::deque<comm::Work> between_replicas_;
  Count count_;
};

}  // namespace lockstep::parallel
