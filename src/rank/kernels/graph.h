// Device work that is recorded once and launched again and again: a CUDA graph, behind an interface that a test can stand in for.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace lockstep::kernels {

// What was recorded. Reads and writes the very memory that the recorded work did: whatever that work found already allocated must
// stay where it is for as long as the graph is launched; what it allocated itself belongs to the graph.
class Graph {
 public:
  virtual ~Graph() = default;
  // On the device's current stream; returns at once.
  virtual void launch() = 0;
};

// One thread. Graphs of one recorder share their memory, so no two of them may run at the same time.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  // Calls `work` once; what it launches on the device's current stream is recorded instead of run. Throws what `work` throws, and where
  // the device refuses to record something; then nothing stays behind. What the work launches must have run before: the first call of a
  // kernel may load code and search algorithms, which cannot be recorded.
  virtual std::unique_ptr<Graph> record(const std::function<void()>& work) = 0;
};

// Null where the device has no graphs: on a CPU.
std::unique_ptr<GraphRecorder> make_graph_recorder(at::Device device);

}  // namespace lockstep::kernels
