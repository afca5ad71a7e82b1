// Next-token prediction on a batch.
#include "rank/task/task.h"

namespace lockstep::task {

at::Tensor forward_backward(model::Decoder& model, const data::Batch& batch, const at::Tensor& scale) {
  return model.forward_backward(batch.tokens, batch.targets, scale);
}

at::Tensor loss_sum(model::Decoder& model, const data::Batch& batch) { return model.loss_sum(batch.tokens, batch.targets); }

}  // namespace lockstep::task
