// Graphs through the CUDA plug-in.
#include "rank/kernels/graph.h"

#include "rank/kernels/plugin.h"

namespace lockstep::kernels {

namespace {

struct Destroy {
  void operator()(NativeRecorder* recorder) const { cuda_plugin().graphs->destroy_recorder(recorder); }
  void operator()(NativeGraph* graph) const { cuda_plugin().graphs->destroy_graph(graph); }
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(NativeGraph* graph) : graph_(graph) {}
  void launch() override { cuda_plugin().graphs->launch(graph_.get()); }

 private:
  std::unique_ptr<NativeGraph, Destroy> graph_;
};

class CudaRecorder final : public GraphRecorder {
 public:
  explicit CudaRecorder(int device) : recorder_(cuda_plugin().graphs->make_recorder(device)) {}

  std::unique_ptr<Graph> record(const std::function<void()>& work) override {
    const GraphTable& graphs = *cuda_plugin().graphs;
    graphs.begin(recorder_.get());
    try {
      work();
    } catch (...) {
      graphs.abandon(recorder_.get());
      throw;
    }
    return std::make_unique<CudaGraph>(graphs.end(recorder_.get()));
  }

 private:
  std::unique_ptr<NativeRecorder, Destroy> recorder_;
};

}  // namespace

std::unique_ptr<GraphRecorder> make_graph_recorder(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  return std::make_unique<CudaRecorder>(device.index());
}

}  // namespace lockstep::kernels
