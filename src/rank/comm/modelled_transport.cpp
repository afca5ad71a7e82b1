// A rank's own part of each collective. What would come from others is written too, as copies of what this rank has: every byte of a result
// is, and layers compute with numbers of the usual size. Sums are this rank's alone.
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "rank/comm/modelled.h"
#include "rank/comm/wrapped_transport.h"

namespace lockstep::comm {
namespace {

double byte_count(const at::Tensor& tensor) { return static_cast<double>(tensor.nbytes()); }

// Does the work on the stream, or the thread, that calls it.
class ModelledTransport final : public Transport {
 public:
  ModelledTransport(Seat seat, const ModelledLink& link, std::shared_ptr<Holder> holder, at::Device device)
      : seat_(seat), link_(link), holder_(std::move(holder)), clock_(at::zeros({}, at::TensorOptions().device(device).dtype(at::kLong))) {}

  int rank() const override { return seat_.rank; }
  int size() const override { return seat_.size; }

  Work all_reduce(const at::Tensor& tensor, Reduce) override {
    return take("all_reduce", 2 * others() / seat_.size * byte_count(tensor), [&] {
      if (tensor.is_floating_point()) tensor.mul_(1);  // read and written, and the same
    });
  }
  Work broadcast(const at::Tensor& tensor, int) override {
    return take("broadcast", byte_count(tensor), [] {});
  }
  Work all_gather(const at::Tensor& whole, const at::Tensor& mine) override {
    return take("all_gather", others() * byte_count(mine),
                [&] { rows(whole, mine.numel()).copy_(mine.reshape({1, -1}).expand({seat_.size, -1})); });
  }
  Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce) override {
    return take("reduce_scatter", others() * byte_count(mine), [&] { mine.view(-1).copy_(rows(whole, mine.numel())[seat_.rank]); });
  }
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent) override {
    return take("all_to_all", others() / seat_.size * byte_count(sent), [&] {
      const at::Tensor own = rows(sent, sent.numel() / seat_.size)[seat_.rank];
      const at::Tensor out = rows(received, received.numel() / seat_.size);
      // Of the sum over ranks only this one's part: the others' are written as zeros.
      out.zero_();
      out[seat_.rank].copy_(own);
    });
  }
  Work send(const at::Tensor& tensor, int) override {
    return take("send", byte_count(tensor), [] {});
  }
  Work recv(const at::Tensor& tensor, int) override {
    return take("recv", byte_count(tensor), [] {});
  }
  bool recordable() const override { return true; }

 private:
  double others() const { return seat_.size - 1; }
  at::Tensor rows(const at::Tensor& tensor, std::int64_t width) const { return tensor.view({seat_.size, width}); }
  template <typename Part>
  Work take(std::string_view kind, double bytes, const Part& part) {
    holder_->begin(clock_, kind);
    part();
    holder_->hold(clock_, kind, link_.seconds(bytes));
    return {};
  }

  Seat seat_;
  ModelledLink link_;
  std::shared_ptr<Holder> holder_;
  at::Tensor clock_;
};

// Beside the stream that computes, as a communicator's stream is.
class BesideCompute final : public WrappedTransport {
 public:
  BesideCompute(std::shared_ptr<Transport> inner, at::Device device)
      : WrappedTransport(std::move(inner)), device_(device), guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device, true)) {}

  bool recordable() const override { return true; }

 private:
  Work start(const at::Tensor& out, const at::Tensor& in, Operation operation) override {
    c10::Event ready(device_.type());
    ready.record(guard_.getStream(device_));
    ready.block(stream_);
    const c10::Stream compute = guard_.exchangeStream(stream_);
    operation(out, in);
    auto done = std::make_shared<c10::Event>(device_.type());
    done->record(stream_);
    guard_.exchangeStream(compute);
    return Work([done, out, in, device = device_] { done->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device)); },
                [done] { return done->query(); });
  }

  at::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
};

}  // namespace

std::shared_ptr<Transport> make_modelled_transport(Seat seat, const ModelledLink& link, std::shared_ptr<Holder> holder, at::Device device) {
  auto here = std::make_shared<ModelledTransport>(seat, link, std::move(holder), device);
  if (device.is_cpu()) return make_queued_transport(std::move(here), device);
  return std::make_shared<BesideCompute>(std::move(here), device);
}

}  // namespace lockstep::comm
