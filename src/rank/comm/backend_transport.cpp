// Carries operations over a c10d backend (Gloo or NCCL).
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

c10d::ReduceOp to_c10d(Reduce op) {
  switch (op) {
    case Reduce::sum: return c10d::ReduceOp::SUM;
    case Reduce::max: return c10d::ReduceOp::MAX;
    case Reduce::min: return c10d::ReduceOp::MIN;
  }
  return c10d::ReduceOp::SUM;
}

bool is_nccl(const c10d::Backend& backend) { return backend.getBackendName() == "nccl"; }

class BackendTransport : public Transport {
 public:
  explicit BackendTransport(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)), timed_(is_nccl(*backend_)) {
    if (timed_) backend_->enableCollectivesTiming();
  }

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }

  Work all_reduce(const at::Tensor& tensor, Reduce op) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    options.asyncOp = true;
    return wrap(backend_->allreduce(tensors, options));
  }
  Work broadcast(const at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.asyncOp = true;
    return wrap(backend_->broadcast(tensors, options));
  }
  Work all_gather(const at::Tensor& whole, const at::Tensor& mine) override {
    at::Tensor output = whole, input = mine;
    c10d::AllgatherOptions options;
    options.asyncOp = true;
    return wrap(backend_->_allgather_base(output, input, options));
  }
  Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op) override {
    at::Tensor output = mine, input = whole;
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(op);
    options.asyncOp = true;
    return wrap(backend_->_reduce_scatter_base(output, input, options));
  }
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent) override {
    at::Tensor output = received, input = sent;
    std::vector<std::int64_t> equal_slices;
    c10d::AllToAllOptions options;
    options.asyncOp = true;
    return wrap(backend_->alltoall_base(output, input, equal_slices, equal_slices, options));
  }
  Work send(const at::Tensor& tensor, int to) override {
    std::vector<at::Tensor> tensors{tensor};
    return wrap(backend_->send(tensors, to, 0));
  }
  Work recv(const at::Tensor& tensor, int from) override {
    std::vector<at::Tensor> tensors{tensor};
    return wrap(backend_->recv(tensors, from, 0));
  }
  bool recordable() const override { return is_nccl(*backend_); }
  void shut_down() override { backend_->shutdown(); }

 private:
  Work wrap(const c10::intrusive_ptr<c10d::Work>& work) const {
    if (!work) return {};
    const auto seconds = timed_ ? std::function([work] { return static_cast<double>(work->getDuration()) * 1e-3; }) : nullptr;
    return Work([work] { work->wait(); }, [work] { return work->isCompleted(); }, seconds);
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  const bool timed_;  // by events of the device, which know the begin as well
};

}  // namespace

std::shared_ptr<Transport> make_backend_transport(c10::intrusive_ptr<c10d::Backend> backend) {
  return std::make_shared<BackendTransport>(std::move(backend));
}

}  // namespace lockstep::comm
