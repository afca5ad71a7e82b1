// Carries operations through memory that ranks of one machine share: every operation is transfers, which move on whenever somebody waits.
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <array>
#include <cstring>
#include <deque>
#include <stdexcept>

#include "base/clock.h"
#include "base/error.h"
#include "rank/comm/shared_memory.h"

namespace lockstep::comm {
namespace {

constexpr double look_around_s = 0.05;  // how soon a rank that has gone is noticed

// Bytes on their way between this rank and another, behind their own number: ranks that do not mean the same operation find out.
struct Transfer {
  std::span<std::byte> left;
  std::uint64_t size;
  bool announced = false, done = false;
};

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(std::unique_ptr<SharedMemory> memory, std::vector<int> in_world, double timeout_s)
      : memory_(std::move(memory)),
        in_world_(std::move(in_world)),
        timeout_s_(timeout_s),
        outgoing_(static_cast<std::size_t>(size())),
        incoming_(static_cast<std::size_t>(size())) {}

  int rank() const override { return memory_->seat().rank; }
  int size() const override { return memory_->seat().size; }

  Work send(const at::Tensor& tensor, int to) override { return begin(outgoing_, tensor, to); }
  Work recv(const at::Tensor& tensor, int from) override { return begin(incoming_, tensor, from); }

  Work broadcast(const at::Tensor& tensor, int root) override {
    if (rank() != root) return recv(tensor, root);
    return all([&](int other) { return std::array{send(tensor, other)}; });
  }
  Work all_gather(const at::Tensor& whole, const at::Tensor& mine) override {
    const at::Tensor rows = whole.view({size(), -1});
    rows[rank()].copy_(mine.view({-1}));
    return all([&](int other) { return std::array{recv(rows[other], other), send(mine, other)}; });
  }
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent) override {
    const at::Tensor from = received.view({size(), -1}), to = sent.view({size(), -1});
    from[rank()].copy_(to[rank()]);
    return all([&](int other) { return std::array{recv(from[other], other), send(to[other], other)}; });
  }
  Work all_reduce(const at::Tensor& tensor, Reduce op) override {
    const at::Tensor rows = at::empty({size(), tensor.numel()}, tensor.options());
    return then(all_gather(rows, tensor.clone()), [rows, tensor, op] { fold(tensor.view({-1}), rows, op); });
  }
  Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op) override {
    const at::Tensor rows = at::empty({size(), mine.numel()}, mine.options());
    return then(all_to_all(rows, whole), [rows, mine, op] { fold(mine.view({-1}), rows, op); });
  }

 private:
  using Ways = std::vector<std::deque<std::shared_ptr<Transfer>>>;  // by the other rank; the first of each is on its way

  static void fold(at::Tensor out, const at::Tensor& rows, Reduce op) {
    out.copy_(rows[0]);
    for (std::int64_t rank = 1; rank < rows.size(0); ++rank) {
      switch (op) {
        case Reduce::sum: out.add_(rows[rank]); break;
        case Reduce::max: at::maximum_out(out, out, rows[rank]); break;
        case Reduce::min: at::minimum_out(out, out, rows[rank]); break;
      }
    }
  }

  Work begin(Ways& ways, const at::Tensor& tensor, int other) {
    base::check(tensor.is_contiguous() && tensor.is_cpu(), "shared memory carries contiguous host tensors");
    const std::span bytes(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
    auto transfer = std::make_shared<Transfer>(Transfer{.left = bytes, .size = bytes.size()});
    ways[static_cast<std::size_t>(other)].push_back(transfer);
    return Work([this, transfer, tensor] { finish(*transfer); }, [transfer] { return transfer->done; });
  }

  // The works that `with` gives for every other rank, as one. Ranks begin with the one behind them, so that not all crowd around the same.
  template <typename With>
  Work all(const With& with) {
    auto works = std::make_shared<std::vector<Work>>();
    for (int step = 1; step < size(); ++step)
      for (Work& work : with((rank() + step) % size())) works->push_back(std::move(work));
    return Work(
        [works] {
          for (Work& work : *works) work.wait();
        },
        [works] { return std::ranges::all_of(*works, &Work::finished); });
  }
  static Work then(Work work, std::function<void()> more) {
    auto first = std::make_shared<Work>(std::move(work));
    auto over = std::make_shared<bool>(false);
    return Work(
        [first, over, more = std::move(more)] {
          first->wait();
          more();
          *over = true;
        },
        [over] { return *over; });
  }

  void finish(const Transfer& transfer) {
    std::int64_t moved_ns = base::now_ns();
    while (!transfer.done) {
      const std::uint32_t rings = memory_->rings();
      if (move_on()) {
        moved_ns = base::now_ns();
      } else if (!memory_->wait(rings, look_around_s)) {
        look_around(base::seconds_since(moved_ns));
      }
    }
  }

  // Moves what can be moved, of all transfers. False: nothing.
  bool move_on() {
    bool any = false;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      bool moved = false;
      auto &out = outgoing_[static_cast<std::size_t>(other)], &in = incoming_[static_cast<std::size_t>(other)];
      while (!out.empty() && push(*out.front(), memory_->to(other), moved)) out.pop_front();
      while (!in.empty() && pull(*in.front(), memory_->from(other), other, moved)) in.pop_front();
      if (moved) memory_->ring(other);
      any |= moved;
    }
    return any;
  }

  // Whether the transfer is over.
  static bool push(Transfer& transfer, Ring& ring, bool& moved) {
    if (!transfer.announced) {
      if (ring.room() < sizeof transfer.size) return false;
      ring.put(std::as_bytes(std::span(&transfer.size, 1)));
      transfer.announced = moved = true;
    }
    return advance(transfer, ring.put(transfer.left), moved);
  }
  bool pull(Transfer& transfer, Ring& ring, int from, bool& moved) const {
    if (!transfer.announced) {
      std::uint64_t sent = 0;
      if (ring.waiting() < sizeof sent) return false;
      ring.take(std::as_writable_bytes(std::span(&sent, 1)));
      if (sent != transfer.size)
        throw std::runtime_error(
            fmt::format("rank {} sent {} bytes, {} were expected", in_world_[static_cast<std::size_t>(from)], sent, transfer.size));
      transfer.announced = moved = true;
    }
    return advance(transfer, ring.take(transfer.left), moved);
  }
  static bool advance(Transfer& transfer, std::size_t bytes, bool& moved) {
    transfer.left = transfer.left.subspan(bytes);
    moved |= bytes > 0;
    return transfer.done = transfer.left.empty();
  }

  // Nothing has moved for a while: is there somebody who could still move it?
  void look_around(double quiet_s) {
    for (int other = 0; other < size(); ++other) {
      const auto slot = static_cast<std::size_t>(other);
      if (outgoing_[slot].empty() && incoming_[slot].empty()) continue;
      if (!memory_->alive(other)) {
        if (move_on()) return;  // its last words
        throw std::runtime_error(fmt::format("rank {} is gone", in_world_[slot]));
      }
      if (quiet_s > timeout_s_)
        throw std::runtime_error(fmt::format("Timed out: rank {} has moved nothing for {:.3g} s", in_world_[slot], quiet_s));
    }
  }

  std::unique_ptr<SharedMemory> memory_;
  std::vector<int> in_world_;  // ranks of the group among all, for words
  double timeout_s_;
  Ways outgoing_, incoming_;
};

}  // namespace

std::shared_ptr<Transport> make_shared_memory_transport(c10d::Store& store, Seat seat, std::vector<int> in_world, double timeout_s,
                                                        std::string& reason) {
  try {
    auto memory = SharedMemory::make(store, seat, reason);
    return memory ? std::make_shared<SharedMemoryTransport>(std::move(memory), std::move(in_world), timeout_s) : nullptr;
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    throw base::run_error("comm", "rank {} could not meet all other ranks: {}. Another rank may have failed first.",
                          in_world[static_cast<std::size_t>(seat.rank)], text.substr(0, text.find('\n')));
  }
}

}  // namespace lockstep::comm
