// Next-token prediction on a batch.
#include "rank/task/task.h"

namespace lockstep::task {
namespace {

model::Input input_of(const data::Batch& batch) {
  return {.tokens = batch.tokens, .targets = batch.targets, .starts = batch.starts, .keys = batch.keys};
}

}  // namespace

at::Tensor forward_backward(model::Decoder& model, const data::Batch& batch, const at::Tensor& scale) {
  return model.forward_backward(input_of(batch), scale);
}

model::Score score(model::Decoder& model, const data::Batch& batch) { return model.score(input_of(batch)); }

}  // namespace lockstep::task
