// Sums in rank order: ranks send each other slices, each adds up its own in f32 from rank 0 on, and the sums go round. As many bytes as a
// ring moves, and no number is copied but into the wire; the same bits for any cut of the numbers, and 16-bit ones are rounded once, not
// once a rank.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

// Up to so many bytes a round trip costs more than the bytes: every rank gets all numbers and adds them itself.
constexpr std::int64_t kFewBytes = 16 * 1024;

bool has_an_order(const at::Tensor& tensor, Reduce op) { return op == Reduce::sum && tensor.is_floating_point(); }

// Bytes of any type travel as bytes: transports need not know 16-bit numbers.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

template <typename T>
void add_in_order(T* out, const std::vector<const void*>& rows, std::int64_t count) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr std::int64_t block = 2048;  // sums stay in the first cache
  std::array<Sum, block> sums;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t some = std::min(block, count - begin);
    const T* first = static_cast<const T*>(rows[0]) + begin;
    for (std::int64_t i = 0; i < some; ++i) sums[i] = static_cast<Sum>(first[i]);
    for (std::size_t rank = 1; rank < rows.size(); ++rank) {
      const T* row = static_cast<const T*>(rows[rank]) + begin;
      for (std::int64_t i = 0; i < some; ++i) sums[i] += static_cast<Sum>(row[i]);
    }
    for (std::int64_t i = 0; i < some; ++i) out[begin + i] = static_cast<T>(sums[i]);
  }
}

// out = sum of the ranks' rows, in f32 at least. One of them may be `out` itself.
void add_in_order(const at::Tensor& out, const std::vector<const void*>& rows) {
  void* to = out.mutable_data_ptr();
  switch (out.scalar_type()) {
    case at::kFloat: return add_in_order(static_cast<float*>(to), rows, out.numel());
    case at::kDouble: return add_in_order(static_cast<double*>(to), rows, out.numel());
    case at::kBFloat16: return add_in_order(static_cast<at::BFloat16*>(to), rows, out.numel());
    case at::kHalf: return add_in_order(static_cast<at::Half*>(to), rows, out.numel());
    default: throw base::Bug("sums in rank order are of floating point numbers");
  }
}

// Operations are done when they return: whoever wants them beside other work queues them.
class RankOrderTransport : public Transport {
 public:
  RankOrderTransport(std::shared_ptr<Transport> wire, std::int64_t most_bytes) : wire_(std::move(wire)), most_bytes_(most_bytes) {}

  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }

  Work all_reduce(const at::Tensor& tensor, Reduce op) override {
    const at::Tensor flat = tensor.view({-1});
    if (!has_an_order(tensor, op)) {
      wire_->all_reduce(tensor, op).wait();
    } else if (static_cast<std::int64_t>(tensor.nbytes()) * size() <= kFewBytes) {
      const at::Tensor all = at::empty({size(), flat.numel()}, flat.options());
      wire_->all_gather(as_bytes(all), as_bytes(flat)).wait();
      std::vector<const void*> rows;
      for (int rank = 0; rank < size(); ++rank) rows.push_back(all[rank].const_data_ptr());
      add_in_order(flat, rows);
    } else {
      in_stretches(flat, [&](const at::Tensor& some, std::int64_t) {
        const std::int64_t count = some.numel();
        const auto slice = [&](int rank) {
          const std::int64_t begin = count * rank / size(), end = count * (rank + 1) / size();
          return some.narrow(0, begin, end - begin);
        };
        sum_slices(slice(rank()), slice);
        exchange([&](int) { return slice(rank()); }, slice);
      });
    }
    return {};
  }
  Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op) override {
    if (has_an_order(mine, op)) {
      in_stretches(mine.view({-1}), [&](const at::Tensor& some, std::int64_t begin) {
        sum_slices(some, [&](int rank) { return whole.view({-1}).narrow(0, rank * mine.numel() + begin, some.numel()); });
      });
    } else {
      wire_->reduce_scatter(mine, whole, op).wait();
    }
    return {};
  }
  Work broadcast(const at::Tensor& tensor, int root) override { return done(wire_->broadcast(tensor, root)); }
  Work all_gather(const at::Tensor& whole, const at::Tensor& mine) override {
    return done(wire_->all_gather(as_bytes(whole), as_bytes(mine)));
  }
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent) override { return done(wire_->all_to_all(received, sent)); }
  Work send(const at::Tensor& tensor, int to) override { return done(wire_->send(tensor, to)); }
  Work recv(const at::Tensor& tensor, int from) override { return done(wire_->recv(tensor, from)); }
  void shut_down() override { wire_->shut_down(); }

 private:
  static Work done(Work work) {
    work.wait();
    return {};
  }

  // with(some of the numbers, where they begin): no more at once than stay in a cache between being received and being added.
  template <typename With>
  void in_stretches(const at::Tensor& flat, const With& with) {
    const std::int64_t most = most_bytes_ > 0 ? std::max<std::int64_t>(1, most_bytes_ / flat.element_size()) : flat.numel();
    for (std::int64_t begin = 0; begin < flat.numel(); begin += most)
      with(flat.narrow(0, begin, std::min(most, flat.numel() - begin)), begin);
  }

  // Every other rank gets sent(rank), and its own comes into received(rank).
  template <typename Sent, typename Received>
  void exchange(const Sent& sent, const Received& received) {
    std::vector<Work> works;
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size(), from = (rank() + size() - step) % size();
      works.push_back(wire_->recv(as_bytes(received(from)), from));
      works.push_back(wire_->send(as_bytes(sent(to)), to));
    }
    for (Work& work : works) work.wait();
  }

  // sum = what all ranks have for slice(rank()).
  template <typename Slice>
  void sum_slices(const at::Tensor& sum, const Slice& slice) {
    const auto bytes = static_cast<std::int64_t>(sum.nbytes());
    if (!others_.defined() || others_.numel() < bytes * size()) others_ = at::empty({bytes * size()}, sum.options().dtype(at::kByte));
    const auto others = [&](int rank) { return others_.narrow(0, rank * bytes, bytes); };
    exchange(slice, others);
    std::vector<const void*> rows;
    for (int from = 0; from < size(); ++from) rows.push_back((from == rank() ? slice(from) : others(from)).const_data_ptr());
    add_in_order(sum, rows);
  }

  at::Tensor others_;  // other ranks' slices, kept from sum to sum: new pages would cost as much as adding
  std::shared_ptr<Transport> wire_;
  std::int64_t most_bytes_;
};

}  // namespace

std::shared_ptr<Transport> make_rank_order_transport(std::shared_ptr<Transport> wire, std::int64_t most_bytes) {
  return std::make_shared<RankOrderTransport>(std::move(wire), most_bytes);
}

}  // namespace lockstep::comm
