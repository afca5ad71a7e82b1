// How ranks talk: Group is a set of ranks and the operations they do together; World is this process's place among all.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "journal/page.h"
#include "rank/comm/modelled.h"

namespace c10d {
class Store;
}

namespace lockstep::comm {

enum class Reduce { sum, max, min };

class Ledger;
class MeetingPoint;
class Transport;

// A started operation. The tensors must not be touched before wait().
class [[nodiscard]] Work {
 public:
  Work() = default;  // already finished
  // seconds: from its begin to its end, once it has finished; empty where nothing measures that.
  Work(std::function<void()> wait, std::function<bool()> finished, std::function<double()> seconds = {})
      : wait_(std::move(wait)), finished_(std::move(finished)), seconds_(std::move(seconds)) {}
  // CPU backends: blocks the calling thread until done. NCCL: the current stream waits, the thread does not.
  void wait();
  bool finished() const { return !finished_ || finished_(); }
  std::optional<double> seconds() const { return seconds_ ? std::optional(seconds_()) : std::nullopt; }

 private:
  std::function<void()> wait_;
  std::function<bool()> finished_;
  std::function<double()> seconds_;
};

// Collective: every rank of the group calls the same operations in the same order. One thread at a time.
// `what` says what the bytes are ("gradients of block 14"); it shows up in stall reports and traces.
class Group {
 public:
  // meeting: null for a group of one. ledger: null where nobody counts. in_world: its members' ranks among all; empty: the same.
  Group(std::string name, at::Device device, std::shared_ptr<Transport> transport, std::shared_ptr<journal::PageWriter> page,
        std::shared_ptr<MeetingPoint> meeting = nullptr, std::shared_ptr<Ledger> ledger = nullptr, std::vector<int> in_world = {});

  int rank() const;
  int size() const;
  // What a member is called among all ranks: the name that people know it by.
  int in_world(int member) const { return in_world_.empty() ? member : in_world_[static_cast<std::size_t>(member)]; }
  const std::string& name() const { return name_; }
  at::Device device() const;  // where this group's tensors live

  // Whether operations may be recorded into a CUDA graph and replayed with it.
  bool recordable() const;
  // While it lives, operations are being recorded: they are neither numbered nor watched, because nothing runs yet.
  class Recording {
   public:
    explicit Recording(const Group& group);
    ~Recording();
    Recording(const Recording&) = delete;

   private:
    const Group& group_;
  };
  // Launches recorded operations; what they do together counts as one. The current stream has them in order: nothing need wait.
  Work replay(const at::Tensor& payload, std::string_view what, const std::function<void()>& launch) const;

  Work all_reduce(const at::Tensor& tensor, Reduce op, std::string_view what) const;
  // The same, summed in another precision than the tensor's own.
  Work all_reduce_as(at::ScalarType precision, const at::Tensor& tensor, Reduce op, std::string_view what) const;
  Work broadcast(const at::Tensor& tensor, int root, std::string_view what) const;
  Work all_gather(const at::Tensor& whole, const at::Tensor& mine, std::string_view what) const;                 // whole: size() times mine
  Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op, std::string_view what) const;  // whole: size() times mine
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent, std::string_view what) const;              // equal slices
  Work send(const at::Tensor& tensor, int to, std::string_view what) const;
  Work recv(const at::Tensor& tensor, int from, std::string_view what) const;
  void barrier(std::string_view what) const;
  // A barrier for the host without a deadline: before the first operation after anything that may take one rank much longer than the
  // others (verifying, saving, exporting, loading). Operations fail after parallel.timeout_s; this waits.
  void meet(std::string_view what) const;
  // Whether every rank says yes. Waits for the answer.
  bool all_agree(bool yes, std::string_view what) const;

  // For World: marks in the page what has finished though nobody waited.
  void mark_finished() const;

 private:
  struct State;
  Work stamped(std::string_view kind, std::string_view what, const at::Tensor& payload, const std::function<Work()>& start) const;
  std::string name_;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<MeetingPoint> meeting_;
  std::vector<int> in_world_;
  std::shared_ptr<State> state_;
};

// This process's place: from RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
struct Place {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
};
Place place_from_environment();

// Owns the connections. Shut down in the destructor, in the same order on every rank.
class World {
 public:
  struct Options {
    Place place;
    config::Backend backend = config::Backend::automatic;
    at::Device device = at::kCPU;
    double timeout_s = 600;
    double silence_s = 600;                                 // Group::meet() gives a rank up that has shown no life for so long
    std::function<std::shared_ptr<Transport>()> nccl = {};  // stands in for NCCL on any device, in tests
    std::function<void()> before_gloo = {};                 // may fail a connection, in tests
    std::optional<ModelledLinks> links = {};                // the others are not there: this rank does its part of what all do
  };
  World(const Options& options, std::shared_ptr<journal::PageWriter> page);
  ~World();
  World(const World&) = delete;

  const Group& everyone() const { return *everyone_; }
  // Collective over `members` (ranks, ascending, this one among them), the same calls in the same order on all of them. Ranks that have a
  // group together already get that one. `name` is the same on all ranks; the group's own name adds who it is about.
  const Group& group(std::string_view name, const std::vector<int>& members);
  // The same with a connection of its own: operations of two groups over one connection wait for each other.
  const Group& own_group(std::string_view name, const std::vector<int>& members);
  const Place& place() const { return place_; }
  config::Backend backend() const { return backend_; }
  const at::Device& device() const { return device_; }
  // `look` is called some twenty times a second, by the thread that watches operations, for as long as the world lives. One at most.
  void watch(std::function<void()> look);
  // Takes note of operations that have finished, as the watcher does some twenty times a second. Any thread.
  void note_finished() const;
  // What operations of all groups come to. An operation's time is in it once it is noted to have finished.
  Ledger& ledger() const { return *ledger_; }
  // Why another backend than the first choice is used; empty if it is not.
  const std::string& fallback() const { return fallback_; }

 private:
  struct Connection;
  struct Member {
    std::vector<int> ranks;
    std::shared_ptr<Transport> transport;
    Group group;
  };
  void connect_everyone(const Options& options);
  std::shared_ptr<Transport> host_transport(const c10::intrusive_ptr<c10d::Store>& keys, const std::vector<int>& members) const;
  const Group& add(std::string name, std::vector<int> ranks, std::shared_ptr<Transport> transport,
                   const c10::intrusive_ptr<c10d::Store>& keys);

  Place place_;
  config::Backend backend_;
  at::Device device_;
  double timeout_s_, silence_s_;
  std::optional<ModelledLinks> links_;
  std::function<void()> before_gloo_;
  std::string fallback_;
  std::shared_ptr<journal::PageWriter> page_;
  std::shared_ptr<Ledger> ledger_;
  std::unique_ptr<Connection> connection_;
  const Group* everyone_ = nullptr;
};

}  // namespace lockstep::comm
