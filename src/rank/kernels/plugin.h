// The CUDA plug-in: kernels, device queries and NCCL in a library of their own, loaded only where a CUDA device is used.
#pragma once

#include <cstdint>
#include <string>

#include "rank/kernels/fp8_table.h"
#include "rank/kernels/graph_table.h"
#include "rank/kernels/table.h"

namespace lockstep::kernels {

namespace cuda {
struct Session;
}
struct HoldTable;      // hold_table.h
struct ProgressTable;  // progress_table.h
struct RaggedTable;    // ragged_table.h

// What liblockstep_cuda.so exports through `lockstep_cuda_plugin`.
struct CudaPlugin {
  int version;
  const Table* table;
  const Fp8Table* fp8;  // for devices whose capability has it
  const GraphTable* graphs;
  const RaggedTable* ragged;
  const ProgressTable* progress;
  const HoldTable* hold;
  Stream (*current_stream)(int device);            // also makes it the calling thread's device, so that kernels land there
  void (*synchronize)(int device);                 // waits for the current stream
  std::uint64_t (*peak_memory_bytes)(int device);  // most that tensors have held at once since the last reset
  void (*reset_peak_memory)(int device);
  void (*free_memory_bytes)(int device, std::uint64_t* free, std::uint64_t* total);
  void (*device_name)(int device, char* text, int capacity);
  int (*capability)(int device);  // 90 for compute capability 9.0
  int (*device_count)();
  void (*set_allocator)(const char* settings);  // "expandable_segments:True"
  // What kernels keep between calls: session.h decides whose it is. Opened, the device's memory is as nobody had used it.
  cuda::Session* (*open_session)(int device);
  void (*use_session)(cuda::Session* session);  // null: none, and calls that keep something throw
  void (*close_session)(cuda::Session* session);
};
inline constexpr int kCudaPluginVersion = 12;

// Loads the plug-in on first call, for as long as the process lives, with what its libraries read from the environment when they start:
// call it before there are other threads. Throws UserError(machine) that says what is missing.
const CudaPlugin& cuda_plugin();
// Whether this build has a plug-in at all (CUDA=0 builds do not).
bool built_with_cuda();

}  // namespace lockstep::kernels
