// What the CUDA plug-in does for graphs, as plain functions.
#pragma once

namespace lockstep::kernels {

struct NativeRecorder;  // a stream to record on and a pool of memory
struct NativeGraph;     // ready to launch; keeps the pool

struct GraphTable {
  NativeRecorder* (*make_recorder)(int device);
  void (*destroy_recorder)(NativeRecorder* recorder);
  // From here to end() or abandon() the calling thread's current stream is one that records, and what it allocates is the pool's.
  void (*begin)(NativeRecorder* recorder);
  NativeGraph* (*end)(NativeRecorder* recorder);  // throws where the recording was spoilt; it is abandoned then
  void (*abandon)(NativeRecorder* recorder);      // never throws
  void (*launch)(NativeGraph* graph);             // on the device's current stream
  void (*destroy_graph)(NativeGraph* graph);
};

}  // namespace lockstep::kernels
