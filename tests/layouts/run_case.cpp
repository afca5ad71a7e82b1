// Builds the run that `lockstep train` would build, steps it, and keeps its numbers.
#include "layouts/run_case.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "layout/tables.h"
#include "layouts/replayer.h"
#include "rank/kernels/session.h"
#include "rank/parallel/sharded_store.h"
#include "rank/train/evaluate.h"
#include "rank/train/run.h"
#include "rank/train/train_step.h"

namespace lockstep::layouts {
namespace {

std::vector<float> values_of(const at::Tensor& numbers) {
  const at::Tensor f32 = numbers.to(at::kCPU, at::kFloat).contiguous();
  return {f32.const_data_ptr<float>(), f32.const_data_ptr<float>() + f32.numel()};
}

std::vector<Stretch> held(const train::Run& run, at::Tensor model::HeldSlice::*numbers) {
  std::vector<Stretch> stretches;
  for (const model::HeldSlice& slice : run.replica.store->updates())
    stretches.push_back({slice.unit, slice.begin, values_of(slice.*numbers)});
  return stretches;
}

// Stands where the step waits for its gradients, and looks at them when they are whole.
class Watched final : public parallel::Exchange {
 public:
  Watched(parallel::Exchange& inner, std::function<void()> look) : inner_(inner), look_(std::move(look)) {}
  void arm(const comm::Group& group) override { inner_.arm(group); }
  void start_all(const comm::Group& group) override { inner_.start_all(group); }
  void replay(const comm::Group& group, const std::function<void()>& launch) override { inner_.replay(group, launch); }
  void finish(const comm::Group& group) override {
    inner_.finish(group);
    look_();
  }

 private:
  parallel::Exchange& inner_;
  std::function<void()> look_;
};

void describe_units(const train::Run& run, RankResult& result) {
  const model::Store& store = *run.replica.store;
  for (std::size_t unit = 0; unit < store.units(); ++unit) {
    result.elements.push_back(store.trained(unit) ? double(store.flat(unit).elements) : 0);
    if (!store.trained(unit)) continue;
    const auto& leaves = store.spec(unit).leaves;
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      std::int64_t begin = store.flat(unit).offsets[leaf].value();
      for (const layout::Piece& piece : leaves[leaf].pieces) {
        result.pieces.push_back({piece.name, unit, begin, piece.elements()});
        begin += piece.elements();
      }
    }
  }
}

void zero_padding(const model::Unit& unit) {
  at::Tensor named = at::zeros({unit.elements()}, unit.exact().options().dtype(at::kBool));
  for (const auto& piece : unit.pieces_of(named)) piece.view.fill_(true);
  unit.exact().masked_fill_(named.logical_not(), 0);
}

// Adapters begin as products with zero, which have no gradient in one of their factors.
void stir_adapters(const train::Run& run) {
  for (const model::Unit* unit : run.replica.adapters_in_forward_order()) {
    if (unit == nullptr) continue;
    unit->exact().add_(at::arange(unit->elements(), unit->exact().options()).sin_(), 0.02);
    zero_padding(*unit);
    unit->refresh_weights();
  }
}

std::vector<double> traffic_of(const parallel::ShardedStore* store) {
  if (store == nullptr) return {0, 0, 0, 0};
  return {double(store->gathered().gathers), double(store->gathered().bytes), double(store->reduced().reductions),
          double(store->reduced().bytes)};
}

std::vector<double> planned_for(const train::Run& run) {
  const config::RunConfig& config = run.config;
  const std::int64_t micro_batches = run.batch.gradient_accumulation;
  const bool wide = run.replica.gradient_type() == at::kFloat;
  const layout::Traffic step = layout::tables_of(config, micro_batches, run.world->place().world_size,
                                                 wide ? layout::GradientForm::f32 : layout::narrowest_form(config, micro_batches))
                                   .traffic;
  std::vector<double> all{double(step.gathers), double(step.gathered_bytes), double(step.reductions), double(step.reduced_bytes)};
  for (double& number : all) number *= double(config.trainer.max_steps);
  return all;
}

// On a GPU recordings are CUDA graphs; a CPU has none.
config::RunConfig on(at::Device device, config::RunConfig config, Break rule) {
  config.trainer.auto_find_batch_size = rule == Break::nothing_but_short;
  if (device.is_cpu()) return config;
  config.trainer.target_device = config::DeviceKind::cuda;
  config.trainer.deterministic = true;
  config.trainer.cuda_graphs = rule == Break::nothing_but_replay;
  return config;
}

RankResult train(const config::RunConfig& config, std::optional<std::int64_t> free_bytes, Break rule, const Seat& seat) {
  const comm::Place& place = seat.place;
  const kernels::Session session(seat.device, config.trainer.deterministic);
  train::RunRequest request{
      .config = config, .folder = {}, .device = seat.device, .place = place, .page = std::make_shared<journal::PageWriter>("", 0)};
  request.free_bytes = free_bytes;
  const parallel::ShardedStore* store = nullptr;  // null: units are whole
  request.units = [&](parallel::Replica& replica) {
    store = dynamic_cast<const parallel::ShardedStore*>(replica.store.get());
    break_store(replica, rule, place.rank);
  };
  const auto run = train::build_run(request);
  if (rule == Break::nothing_but_replay && seat.device.is_cpu()) replay_micro_steps(*run, /*warm_up=*/1);
  if (seat.device.is_cuda() && place.world_size > 1) base::check(run->world->backend() == config::Backend::nccl, "ranks meet over NCCL");
  RankResult result;
  describe_units(*run, result);
  result.on_a_gpu = seat.device.is_cuda();
  result.micro_batches = run->batch.gradient_accumulation;
  stir_adapters(*run);
  Watched watched(*run->gradients, [&] {
    if (run->progress.step == 0) result.gradients = held(*run, &model::HeldSlice::gradients);
  });
  run->gradients = &watched;
  const std::vector<double> before = traffic_of(store);
  for (std::int64_t step = 1; step <= config.trainer.max_steps; ++step) {
    const bool follows = step == 1 && config.trainer.optimizer == config::Optimizer::sgd &&
                         config.trainer.optimizer_states == config::StateDType::f32;  // others are rounded by chance
    if (follows) result.before = held(*run, &model::HeldSlice::exact);
    train::train_step(*run);
    if (follows) result.after = held(*run, &model::HeldSlice::exact);
    const double trained = run->totals->of(train::sum::trained).item<double>();
    result.losses.push_back(run->totals->of(train::sum::loss).item<double>() / trained);
    result.norms.push_back(run->optimizer->report().gradient_norm);
    if (step > 1) continue;
    result.to_mean = run->nominal_trained() / trained;
    result.learning_rate = config.trainer.learning_rate;
    result.max_norm = config.trainer.max_grad_norm;
  }
  base::check(run->micro_steps->replayed() == (rule == Break::nothing_but_replay), "micro-steps are recordings where that was asked for");
  result.traffic = traffic_of(store);
  for (std::size_t i = 0; i < before.size(); ++i) result.traffic[i] -= before[i];
  result.planned = planned_for(*run);
  result.eval_loss = train::evaluate(*run).loss;
  result.weights = held(*run, &model::HeldSlice::exact);
  return result;
}

}  // namespace

RankResult run_case(const Table& table, const Case& one, Break rule, const std::string& folder, const Seat& seat) {
  try {
    const auto free_bytes = memory_is_tight(one) ? std::optional<std::int64_t>(0) : std::nullopt;
    return train(on(seat.device, table.settings(one, folder), rule), free_bytes, rule, seat);
  } catch (const std::exception& error) {
    RankResult result;
    result.error = error.what();
    return result;
  }
}

}  // namespace lockstep::layouts
