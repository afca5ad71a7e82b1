// The table of kernels that each kind of device fills: a row for every op that ops/ states. Free of LibTorch.
#pragma once

#include "rank/kernels/ops/layers.h"
#include "rank/kernels/ops/matmul.h"
#include "rank/kernels/ops/optimizer.h"
#include "rank/kernels/ops/quantize.h"

// op(name, Arguments) for every op that each device has.
#define LOCKSTEP_OPS(op) LOCKSTEP_LAYER_OPS(op) LOCKSTEP_OPTIMIZER_OPS(op) LOCKSTEP_QUANTIZE_OPS(op)
// For those lists: a device's function of that name, declared, and in its place of the table.
#define LOCKSTEP_DECLARE_OP(name, Arguments) void name(const Arguments&, Stream);
#define LOCKSTEP_LIST_OP(name, Arguments) .name = name,

namespace lockstep::kernels {

// One device's kernels. Each launches on the stream and returns.
struct Table {
  int partial_rows;  // rows of scratch for column sums
#define LOCKSTEP_POINT_TO_OP(name, Arguments) void (*name)(const Arguments&, Stream);
  LOCKSTEP_OPS(LOCKSTEP_POINT_TO_OP)
#undef LOCKSTEP_POINT_TO_OP
  bool (*matmul)(const Matmul&, Stream);                // false: no algorithm for these sizes. Null on a CPU, where ATen's serves.
  void (*gate_up_swiglu)(const GateUpSwiglu&, Stream);  // these two on compute capability 9.0 alone
  void (*down_backward_swiglu)(const DownBackwardSwiglu&, Stream);
};

}  // namespace lockstep::kernels
