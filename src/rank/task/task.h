// What is trained on a batch: here, predicting the next token. Evaluation belongs to the task too; text from the model: generator.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/data/data.h"
#include "rank/model/model.h"

namespace lockstep::task {

// A micro-batch up to its loss; backward() of the same follows.
void forward(model::Decoder& model, const data::Batch& batch, const model::Micro& micro);
// Adds the gradient of scale * (summed loss) to the model's units; returns the summed loss, f32 on the device.
at::Tensor backward(model::Decoder& model, const at::Tensor& scale);
// Summed loss and correct tokens, without gradients.
model::Score score(model::Decoder& model, const data::Batch& batch);

}  // namespace lockstep::task
