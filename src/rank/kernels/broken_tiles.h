// Processors' matrix tiles, where a virtual machine announces them and does not have them.
#pragma once

namespace lockstep::kernels {

// oneDNN multiplies 16-bit matrices in tiles (AMX) where the processor says that it has them; in some virtual machines the first such
// product ends the process (SIGILL). Tries one in a child process, and where that ends so, tells oneDNN to do without. Before any thread is
// started.
void avoid_broken_tiles();

}  // namespace lockstep::kernels
