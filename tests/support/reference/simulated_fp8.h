// 8-bit products in plain arithmetic: the same scales and the same roundings as the kernels, and sums in f32 (or f64) of the rounded
// numbers.
#pragma once

#include "rank/kernels/fp8_table.h"

namespace lockstep::test {

// Works on tensors of test::device(), be that a CPU or a GPU.
const kernels::Fp8Table& simulated_fp8();

}  // namespace lockstep::test
