// Which kernels a CPU runs: those of the widest instruction set it has.
#pragma once

#include <string_view>

namespace lockstep::kernels {

// "avx512", "avx2" or "plain"; LOCKSTEP_CPU_KERNELS names another that the CPU has.
std::string_view cpu_kernels();

}  // namespace lockstep::kernels
