// What carries a Group's bytes. One class a way of talking; Group above adds names, numbers and deadlines' words.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "rank/comm/comm.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lockstep::comm {

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Work all_reduce(const at::Tensor& tensor, Reduce op) = 0;
  virtual Work broadcast(const at::Tensor& tensor, int root) = 0;
  virtual Work all_gather(const at::Tensor& whole, const at::Tensor& mine) = 0;
  virtual Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op) = 0;
  virtual Work all_to_all(const at::Tensor& received, const at::Tensor& sent) = 0;
  virtual Work send(const at::Tensor& tensor, int to) = 0;
  virtual Work recv(const at::Tensor& tensor, int from) = 0;
  // Whether operations may be recorded into a CUDA graph: nothing about them happens on the host.
  virtual bool recordable() const { return false; }
  virtual void shut_down() {}
};

// A group of one: every operation is already done.
std::shared_ptr<Transport> make_single_transport();
// Any c10d backend: Gloo for host tensors, NCCL for device tensors.
std::shared_ptr<Transport> make_backend_transport(c10::intrusive_ptr<c10d::Backend> backend);
// Host tensors, summed in rank order in f32 whatever their type. Operations are done when they return. most_bytes: of a tensor that is
// summed at once, on a wire that begins quickly; 0: all.
std::shared_ptr<Transport> make_rank_order_transport(std::shared_ptr<Transport> wire, std::int64_t most_bytes);
// Operations of `host`, in order, on a thread of its own; tensors of a device are copied to the host and back.
std::shared_ptr<Transport> make_queued_transport(std::shared_ptr<Transport> host, at::Device device);

// This rank among those of one group.
struct Seat {
  int rank, size;
};
// Between ranks of one machine, host tensors. Operations move on while somebody waits for one. Collective over the store; null, on all
// ranks of the group alike, where they cannot see each other's memory: `reason` says why.
std::shared_ptr<Transport> make_shared_memory_transport(c10d::Store& store, Seat seat, std::vector<int> in_world, double timeout_s,
                                                        std::string& reason);
struct ModelledLink;
class Holder;
// A rank of a group that is not there (modelled.h), beside compute.
std::shared_ptr<Transport> make_modelled_transport(Seat seat, const ModelledLink& link, std::shared_ptr<Holder> holder, at::Device device);
// store: with keys that only the group's ranks use. place: for addresses and words.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Place& place, Seat seat, double timeout_s);
// Whether this build has NCCL at all.
bool has_nccl();
// From the CUDA plug-in; throws UserError where this build has no NCCL.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const Place& place, Seat seat, double timeout_s,
                                            at::Device device);

// One connection for all or for none: what `connect` makes, once every rank has it. Null where it failed on any of them; `failure` then
// says on which and why, the same on all ranks. `connect` runs on a thread of its own, which is left behind where it waits for a rank
// that has failed, with a way to the store of its own: whoever waits for a key keeps it to himself. `ranks` take part, and share the
// store's keys; `name` is for keys and words ("NCCL").
using Connect = std::function<std::shared_ptr<Transport>(const c10::intrusive_ptr<c10d::Store>& store)>;
std::shared_ptr<Transport> connect_together(const c10::intrusive_ptr<c10d::Store>& store, const Place& place, int ranks, double timeout_s,
                                            std::string_view name, const Connect& connect, std::string& failure);

// The key-value store ranks meet at: rank 0 serves it, or torchrun's agent does.
c10::intrusive_ptr<c10d::Store> open_store(const Place& place, double timeout_s);

// Collective over the store. UserError on every rank, with each difference, unless all ranks bring the same facts.
void verify_one_run(c10d::Store& store, const Place& place, const std::string& identity);

}  // namespace lockstep::comm
