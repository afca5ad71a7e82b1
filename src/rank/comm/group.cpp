// Names, numbers and words around a transport's operations.
#include <ATen/ops/full.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"
#include "rank/comm/group_state.h"
#include "rank/comm/ledger.h"
#include "rank/comm/meeting.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

base::UserError lost_operation(int rank, std::string_view kind, std::uint64_t sequence, std::string_view group, std::string_view what,
                               const std::exception& error) {
  std::string_view reason = error.what();
  reason = reason.substr(0, reason.find('\n'));
  return base::run_error("comm", "rank {}: {} {} of group {} ({}) failed: {}", rank, kind, sequence, group, what, reason);
}

// Tells whoever counts that this thread waits, for as long as it does.
class Waiting {
 public:
  Waiting(const Ledger* ledger, std::string_view kind) : ledger_(ledger), kind_(kind) { tell(true); }
  ~Waiting() { tell(false); }
  Waiting(const Waiting&) = delete;

 private:
  void tell(bool begins) const {
    if (ledger_ != nullptr && ledger_->on_wait) ledger_->on_wait(begins, kind_);
  }
  const Ledger* ledger_;
  std::string_view kind_;
};

}  // namespace

void Work::wait() {
  if (wait_) std::exchange(wait_, nullptr)();
}

Group::Group(std::string name, at::Device device, std::shared_ptr<Transport> transport, std::shared_ptr<journal::PageWriter> page,
             std::shared_ptr<MeetingPoint> meeting, std::shared_ptr<Ledger> ledger, std::vector<int> in_world)
    : name_(std::move(name)),
      transport_(std::move(transport)),
      meeting_(std::move(meeting)),
      in_world_(std::move(in_world)),
      state_(std::make_shared<State>()) {
  state_->device = device;
  state_->page = std::move(page);
  if (size() > 1) state_->ledger = std::move(ledger);
}

int Group::rank() const { return transport_->rank(); }
int Group::size() const { return transport_->size(); }
at::Device Group::device() const { return state_->device; }

bool Group::recordable() const { return transport_->recordable(); }
Group::Recording::Recording(const Group& group) : group_(group) { group_.state_->recording = true; }
Group::Recording::~Recording() { group_.state_->recording = false; }

Work Group::stamped(std::string_view kind, std::string_view what, const at::Tensor& payload, const std::function<Work()>& start) const {
  if (state_->recording) {
    auto recorded = std::make_shared<Work>(start());
    return Work(
        [recorded, state = state_, kind] {
          const Waiting waiting(state->ledger.get(), kind);
          recorded->wait();
        },
        [recorded] { return recorded->finished(); });
  }
  const std::uint64_t sequence = ++state_->sequence;
  const int slot = state_->page->stamp(name_, kind, what, sequence, payload.nbytes());
  if (state_->ledger) state_->ledger->issued(kind, payload.nbytes());
  auto failed = [name = name_, kind = std::string(kind), what = std::string(what), sequence,
                 rank = in_world(rank())](const std::exception& error) { return lost_operation(rank, kind, sequence, name, what, error); };
  Work work;
  try {
    work = start();
  } catch (const std::exception& error) {
    throw failed(error);
  }
  if (work.finished()) {
    state_->page->mark(slot, sequence, journal::OperationState::finished);
    return work;
  }
  // Both the waiting thread and the watcher hold the transport's work.
  auto shared = std::make_shared<Work>(std::move(work));
  {
    const base::Lock lock(state_->mutex);
    state_->in_flight.push_back({slot, sequence, payload.nbytes(), kind, shared});
  }
  auto wait = [state = state_, slot, sequence, shared, failed, kind] {
    state->page->mark(slot, sequence, journal::OperationState::waited_for);
    const Waiting waiting(state->ledger.get(), kind);
    try {
      shared->wait();
    } catch (const std::exception& error) {
      throw failed(error);
    }
    if (shared->finished()) state->page->mark(slot, sequence, journal::OperationState::finished);
  };
  return Work(std::move(wait), [shared] { return shared->finished(); });
}

Work Group::replay(const at::Tensor& payload, std::string_view what, const std::function<void()>& launch) const {
  return stamped("all_reduce", what, payload, [&] {
    launch();
    if (payload.is_cpu()) return Work();
    auto end = std::make_shared<c10::Event>(payload.device().type());
    end->record(c10::impl::VirtualGuardImpl(payload.device().type()).getStream(payload.device()));
    return Work([] {}, [end] { return end->query(); });
  });
}
Work Group::all_reduce(const at::Tensor& tensor, Reduce op, std::string_view what) const {
  return stamped("all_reduce", what, tensor, [&] { return transport_->all_reduce(tensor, op); });
}
Work Group::all_reduce_as(at::ScalarType precision, const at::Tensor& tensor, Reduce op, std::string_view what) const {
  if (size() == 1 || tensor.scalar_type() == precision) return all_reduce(tensor, op, what);
  const at::Tensor staged = tensor.to(precision);
  auto work = std::make_shared<Work>(all_reduce(staged, op, what));
  return Work(
      [work, staged, tensor] {
        work->wait();
        tensor.copy_(staged);
      },
      [work] { return work->finished(); });
}
Work Group::broadcast(const at::Tensor& tensor, int root, std::string_view what) const {
  return stamped("broadcast", what, tensor, [&] { return transport_->broadcast(tensor, root); });
}
Work Group::all_gather(const at::Tensor& whole, const at::Tensor& mine, std::string_view what) const {
  base::check(whole.numel() == mine.numel() * size(), "all_gather: whole must hold size() times mine");
  return stamped("all_gather", what, mine, [&] { return transport_->all_gather(whole.view(-1), mine.view(-1)); });
}
Work Group::reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op, std::string_view what) const {
  base::check(whole.numel() == mine.numel() * size(), "reduce_scatter: whole must hold size() times mine");
  return stamped("reduce_scatter", what, whole, [&] { return transport_->reduce_scatter(mine.view(-1), whole.view(-1), op); });
}
Work Group::all_to_all(const at::Tensor& received, const at::Tensor& sent, std::string_view what) const {
  return stamped("all_to_all", what, sent, [&] { return transport_->all_to_all(received, sent); });
}
Work Group::send(const at::Tensor& tensor, int to, std::string_view what) const {
  return stamped("send", what, tensor, [&] { return transport_->send(tensor, to); });
}
Work Group::recv(const at::Tensor& tensor, int from, std::string_view what) const {
  return stamped("recv", what, tensor, [&] { return transport_->recv(tensor, from); });
}

void Group::barrier(std::string_view what) const {
  const at::Tensor token = at::zeros({1}, at::TensorOptions().device(state_->device).dtype(at::kFloat));
  stamped("barrier", what, token, [&] { return transport_->all_reduce(token, Reduce::sum); }).wait();
  // On a device wait() only orders streams; a barrier is for the host.
  if (!token.is_cpu()) token.cpu();
}

void Group::meet(std::string_view what) const {
  if (!meeting_) return;
  const std::uint64_t sequence = ++state_->sequence;
  const int slot = state_->page->stamp(name_, "meeting", what, sequence, 0);
  state_->page->mark(slot, sequence, journal::OperationState::waited_for);
  try {
    meeting_->meet(sequence);
  } catch (const std::exception& error) {
    throw lost_operation(in_world(rank()), "meeting", sequence, name_, what, error);
  }
  state_->page->mark(slot, sequence, journal::OperationState::finished);
}

bool Group::all_agree(bool yes, std::string_view what) const {
  const at::Tensor all = at::full({1}, yes ? 1 : 0, at::TensorOptions().device(state_->device).dtype(at::kFloat));
  all_reduce(all, Reduce::min, what).wait();
  return all.item<float>() > 0;
}

void Group::mark_finished() const {
  const base::Lock lock(state_->mutex);
  std::erase_if(state_->in_flight, [&](const State::InFlight& operation) {
    const bool done = operation.work->finished();
    if (!done) return false;
    state_->page->mark(operation.slot, operation.sequence, journal::OperationState::finished);
    if (state_->ledger) {
      if (const auto seconds = operation.work->seconds()) state_->ledger->took(operation.kind, operation.bytes, *seconds);
    }
    return true;
  });
}

}  // namespace lockstep::comm
