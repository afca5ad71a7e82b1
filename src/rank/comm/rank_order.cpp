// Sums in rank order: slices are exchanged, each rank adds up its own in f32 from rank 0 on, and the sums are gathered. As many bytes as a
// ring moves; the same bits for any cut of the numbers, and 16-bit numbers are rounded once, not once a rank.
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include "base/ceil_div.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

// Up to so many bytes a round trip costs more than the bytes: every rank gets all numbers and adds them itself.
constexpr std::int64_t kFewBytes = 16 * 1024;

bool has_an_order(const at::Tensor& tensor, Reduce op) { return op == Reduce::sum && tensor.is_floating_point(); }

// Bytes of any type travel as bytes: transports need not know 16-bit numbers.
at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// out = sum of rows [ranks, count], in f32 at least.
void add_rows(const at::Tensor& out, const at::Tensor& rows) {
  const at::ScalarType type = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor sum = type == out.scalar_type() ? out : at::empty(out.sizes(), out.options().dtype(type));
  if (rows.size(0) == 1) sum.copy_(rows[0]);
  if (rows.size(0) > 1) at::add_out(sum, rows[0].to(type), rows[1]);
  for (std::int64_t rank = 2; rank < rows.size(0); ++rank) sum.add_(rows[rank]);
  if (!sum.is_same(out)) out.copy_(sum);
}

// Operations are done when they return: whoever wants them beside other work queues them.
class RankOrderTransport : public Transport {
 public:
  explicit RankOrderTransport(std::shared_ptr<Transport> wire) : wire_(std::move(wire)) {}

  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }

  Work all_reduce(const at::Tensor& tensor, Reduce op) override {
    if (!has_an_order(tensor, op) || tensor.numel() == 0) {
      wire_->all_reduce(tensor, op).wait();
    } else if (static_cast<std::int64_t>(tensor.nbytes()) * size() <= kFewBytes) {
      const at::Tensor flat = tensor.view({-1});
      const at::Tensor all = at::empty({size(), flat.numel()}, flat.options());
      wire_->all_gather(bytes_of(all), bytes_of(flat)).wait();
      add_rows(flat, all);
    } else {
      sum_in_slices(tensor.view({-1}));
    }
    return {};
  }
  Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op) override {
    if (!has_an_order(mine, op)) {
      wire_->reduce_scatter(mine, whole, op).wait();
      return {};
    }
    const at::Tensor received = at::empty({size(), mine.numel()}, mine.options());
    wire_->all_to_all(bytes_of(received), bytes_of(whole)).wait();
    add_rows(mine.view({-1}), received);
    return {};
  }
  Work broadcast(const at::Tensor& tensor, int root) override { return done(wire_->broadcast(tensor, root)); }
  Work all_gather(const at::Tensor& whole, const at::Tensor& mine) override { return done(wire_->all_gather(whole, mine)); }
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent) override { return done(wire_->all_to_all(received, sent)); }
  Work send(const at::Tensor& tensor, int to) override { return done(wire_->send(tensor, to)); }
  Work recv(const at::Tensor& tensor, int from) override { return done(wire_->recv(tensor, from)); }
  void shut_down() override { wire_->shut_down(); }

 private:
  static Work done(Work work) {
    work.wait();
    return {};
  }

  // Equal slices, the last filled up: one buffer goes out, comes back as everyone's slices of mine, and takes the sums.
  void sum_in_slices(const at::Tensor& flat) {
    const std::int64_t count = flat.numel(), slice = base::ceil_div(count, std::int64_t(size())), padded = slice * size();
    const at::Tensor whole = count == padded ? flat : at::empty({padded}, flat.options());
    if (count != padded) {
      whole.narrow(0, 0, count).copy_(flat);
      whole.narrow(0, count, padded - count).zero_();
    }
    const at::Tensor received = at::empty({size(), slice}, flat.options());
    wire_->all_to_all(bytes_of(received), bytes_of(whole)).wait();
    const at::Tensor sum = received[0];  // read first, element by element
    add_rows(sum, received);
    wire_->all_gather(bytes_of(whole), bytes_of(sum)).wait();
    if (count != padded) flat.copy_(whole.narrow(0, 0, count));
  }

  std::shared_ptr<Transport> wire_;
};

}  // namespace

std::shared_ptr<Transport> make_rank_order_transport(std::shared_ptr<Transport> wire) {
  return std::make_shared<RankOrderTransport>(std::move(wire));
}

}  // namespace lockstep::comm
