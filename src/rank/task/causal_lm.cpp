// Next-token prediction on a batch.
#include "rank/task/task.h"

namespace lockstep::task {
namespace {

model::Input input_of(const data::Batch& batch) {
  return {.tokens = batch.tokens, .targets = batch.targets, .starts = batch.starts, .keys = batch.keys};
}

}  // namespace

void forward(model::Decoder& model, const data::Batch& batch, const model::Micro& micro) { model.forward(input_of(batch), micro); }

at::Tensor backward(model::Decoder& model, const at::Tensor& scale) { return model.backward(scale); }

model::Score score(model::Decoder& model, const data::Batch& batch) { return model.score(input_of(batch)); }

}  // namespace lockstep::task
