// What is trained on a batch: here, predicting the next token. Evaluation and samples belong to the task too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rank/data/data.h"
#include "rank/model/model.h"

namespace lockstep::task {

// Adds the gradient of scale * (summed loss) to the model's units; returns the summed loss, f32 on the device.
at::Tensor forward_backward(model::Decoder& model, const data::Batch& batch, const at::Tensor& scale);
// Summed loss without gradients.
at::Tensor loss_sum(model::Decoder& model, const data::Batch& batch);

struct SampleOptions {
  std::int64_t max_tokens = 80;
  double temperature = 0.7;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: all
  std::int64_t seed = 0;
  std::int64_t context = 256;  // tokens the model may look back
};
// Continues `prompt`; the text returned starts with it.
std::string sample(model::Decoder& model, const data::Vocabulary& vocabulary, const std::string& prompt, at::Device device,
                   const SampleOptions& options);

}  // namespace lockstep::task
