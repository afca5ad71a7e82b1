// A transport that does another's operations in its own place and time: on a stream, or on a thread.
#pragma once

#include <functional>
#include <memory>

#include "rank/comm/transport.h"

namespace lockstep::comm {

class WrappedTransport : public Transport {
 public:
  explicit WrappedTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  Work all_reduce(const at::Tensor& tensor, Reduce op) override {
    return start(tensor, tensor, [this, op](const at::Tensor& out, const at::Tensor&) { inner_->all_reduce(out, op).wait(); });
  }
  Work broadcast(const at::Tensor& tensor, int root) override {
    return start(tensor, tensor, [this, root](const at::Tensor& out, const at::Tensor&) { inner_->broadcast(out, root).wait(); });
  }
  Work all_gather(const at::Tensor& whole, const at::Tensor& mine) override {
    return start(whole, mine, [this](const at::Tensor& out, const at::Tensor& in) { inner_->all_gather(out, in).wait(); });
  }
  Work reduce_scatter(const at::Tensor& mine, const at::Tensor& whole, Reduce op) override {
    return start(mine, whole, [this, op](const at::Tensor& out, const at::Tensor& in) { inner_->reduce_scatter(out, in, op).wait(); });
  }
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent) override {
    return start(received, sent, [this](const at::Tensor& out, const at::Tensor& in) { inner_->all_to_all(out, in).wait(); });
  }
  Work send(const at::Tensor& tensor, int to) override {
    return start(tensor, tensor, [this, to](const at::Tensor& out, const at::Tensor&) { inner_->send(out, to).wait(); });
  }
  Work recv(const at::Tensor& tensor, int from) override {
    return start(tensor, tensor, [this, from](const at::Tensor& out, const at::Tensor&) { inner_->recv(out, from).wait(); });
  }
  void shut_down() override { inner_->shut_down(); }

 protected:
  // One of inner's operations, waited for.
  using Operation = std::function<void(const at::Tensor& out, const at::Tensor& in)>;
  // Both tensors live until somebody waits for the work; they are the same where an operation has but one. `operation` may be called with
  // copies of them, once, while this transport lives.
  virtual Work start(const at::Tensor& out, const at::Tensor& in, Operation operation) = 0;

 private:
  std::shared_ptr<Transport> inner_;
};

}  // namespace lockstep::comm
