// Copies gradients and sums, and puts them back.
#include "layouts/replayer.h"

#include "rank/train/step/micro_steps.h"

namespace lockstep::layouts {
namespace {

class Replayer final : public kernels::GraphRecorder {
 public:
  explicit Replayer(const parallel::Replica& replica) : replica_(replica) {}

  std::unique_ptr<kernels::Graph> record(const std::function<void()>& work) override {
    std::vector<std::pair<at::Tensor, at::Tensor>> numbers;
    const auto keep = [&](const at::Tensor& tensor) {
      if (tensor.defined()) numbers.emplace_back(tensor, tensor.clone());
    };
    for (const parallel::GradientMemory& memory : replica_.gradients) keep(memory.memory);
    for (const model::Unit* unit : replica_.trained_in_forward_order())
      if (unit->shard()) keep(unit->summed_gradients());
    work();
    for (const auto& [tensor, before] : numbers) tensor.copy_(before);
    return std::make_unique<Again>(work);
  }

 private:
  class Again final : public kernels::Graph {
   public:
    explicit Again(std::function<void()> work) : work_(std::move(work)) {}
    void launch() override { work_(); }

   private:
    std::function<void()> work_;
  };
  const parallel::Replica& replica_;
};

}  // namespace

void replay_micro_steps(train::Run& run, std::int64_t warm_up) {
  run.micro_steps = std::make_unique<train::MicroSteps>(
      *run.task, *run.model, *run.gradients, run.mesh->loss(),
      train::MicroSteps::Options{.recorder = std::make_unique<Replayer>(run.replica),
                                 .warm_up = warm_up,
                                 .records_host = true,
                                 .store = run.replica.store->opens_together() ? run.replica.store.get() : nullptr,
                                 .sums = run.gradient_sums.get()});
}

}  // namespace lockstep::layouts
