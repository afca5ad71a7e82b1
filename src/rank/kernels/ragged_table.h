// What the CUDA plug-in exports for attention over records of different lengths, by cuDNN.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep::kernels {

// Rows of `offsets` below: where each record begins, in numbers from the first, for tensors of these row sizes.
enum RaggedOffset { q_offset, k_offset, v_offset, out_offset, kv_offset, log_sum_offset, kRaggedOffsets };

// Records lie one after another in the rows. A plan serves all calls of the same number of records, longest and row sizes.
struct RaggedCall {
  at::Tensor q;                  // [rows, heads, head_dim]; a row's heads side by side, rows any distance apart
  at::Tensor k, v;               // [rows, kv_heads, head_dim], the same
  at::Tensor lengths;            // i32 [records]; may be 0
  at::Tensor offsets;            // i32 [kRaggedOffsets, records + 1]
  std::int64_t longest = 0;      // no record is longer
  at::Tensor out, log_sum = {};  // [rows, heads, head_dim], f32 [rows, heads]: forward writes, backward reads
};
struct RaggedGradients {
  at::Tensor dout;    // [rows, heads, head_dim], contiguous
  at::Tensor dq;      // written: [rows, heads, head_dim], rows as far apart as q's
  at::Tensor dk, dv;  // written: [rows, kv_heads, head_dim], contiguous
};

struct RaggedTable {
  // Makes the plans of forward and backward where they are not there yet. False, and why: cuDNN has none.
  bool (*plan)(const RaggedCall& call, std::string& why);
  // On the current stream. Both throw where cuDNN fails.
  void (*forward)(const RaggedCall& call);
  void (*backward)(const RaggedCall& call, const RaggedGradients& gradients);
};

}  // namespace lockstep::kernels
