// What every op's header starts from: types of numbers, a device's queue of work, tensors by name alone. Free of LibTorch.
//
// An op is stated once, in one of these headers: the struct of raw pointers and sizes that its kernels take, the function that tensors see
// (defined in face/, it checks shapes and calls the device's kernel), and its row in the list at the end, which makes the table of each
// device. Tensors are contiguous unless said otherwise; work is on the device's current stream; nothing waits for the host.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace lockstep::kernels {

enum class Type : int { f32, bf16, f16 };
using Stream = void*;  // cudaStream_t; unused on a CPU
enum class Into { write, add };

}  // namespace lockstep::kernels
