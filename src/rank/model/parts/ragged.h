// Attention over packed records by cuDNN, on the GPUs whose cuDNN has it.
#pragma once

#include "rank/model/parts/attention.h"

namespace lockstep::model {

// Whether it takes these: 16 bit, compute capability 9 or 10, heads of 16, 32, ... 128, and plans for forward and backward at this shape.
// The first shape without a plan is said in the log, and from then on the answer is no.
bool has_ragged_attention(const HeadViews& heads, Segments& segments);

// As attention_forward and attention_backward; no gradient is summed in a fixed order.
void ragged_forward(const HeadViews& heads, Segments& segments, AttentionSaved& saved);
HeadGradients ragged_backward(const at::Tensor& dout, const HeadViews& heads, Segments& segments, const AttentionSaved& saved);

}  // namespace lockstep::model
