// Sums of many micro-batches: nothing is rounded away, whatever gradients are held in; and which form they get, by memory and settings.
#include "rank/train/memory/gradients.h"

#include "rank/comm/transport.h"
#include "layout/recompute.h"
#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

config::RunConfig very_small(bool lora = false) {
  config::RunConfig c;
  c.model = config::with_defaults(
      {.hidden_size = 32, .num_layers = 1, .num_heads = 2, .kv_heads = 1, .intermediate_size = 48, .vocab_size = 48, .max_seq_len = 16});
  c.data.kind = config::DataKind::random;
  c.model.dtype = config::DType::bf16;
  c.model.qkv_bias = true;
  if (lora) {
    c.lora.enabled = true;
    c.lora.rank = 4;
    c.lora.target_modules = {"all-linear"};
    c.lora.dora = true;
  }
  return c;
}

// A step of `count` equal micro-batches; its gradients before the update.
struct Step {
  Step(const config::RunConfig& config, std::int64_t count, std::optional<std::int64_t> free_bytes = {}, bool safe = true)
      : ranks("world", device, comm::make_single_transport(), std::make_shared<journal::PageWriter>("", 0)),
        replica(make_units(config, device)),
        model(std::make_unique<model::Decoder>(config.model, config.lora, *replica.store)) {
    initialize_weights(config, replica);
    initialize_adapters(config, replica, *model);
    for (model::Unit* unit : replica.trained_in_forward_order()) {  // B too, or A has no gradient
      if (config.lora.enabled) unit->exact().add_(0.01);
      unit->refresh_weights();
    }
    const config::BatchPlan batch{1, count, count, 0};
    const MemoryQuestion question{config, batch, 8, 1, free_bytes};
    const MemoryPlan plan = plan_memory(question, replica, [](bool fits) { return fits; });
    sums = apply(plan, question, replica, *model);
    form = describe(plan, config, replica, sums.get());
    parallel::GradientSync sync(replica.gradients.front().memory, *replica.store, config.parallel);
    const auto task = task::open_task(config);
    MicroSteps micro_steps(*task, *model, sync, ranks, {.sums = safe ? sums.get() : nullptr});
    const auto made = test::random_batch({.vocab = 48, .batch = 1, .time = 8}, 0, device);
    const data::Batch one = data::batch_of({.tokens = made.tokens, .targets = made.targets});
    const at::Tensor scale = at::full({}, 1.0 / double(count), at::TensorOptions().device(device).dtype(at::kFloat));
    for (std::int64_t i = 1; i <= count; ++i) {
      micro_steps.forward(one, scale, {.index = i - 1, .first = i == 1, .last = i == count});
      micro_steps.backward();
    }
    sync.finish(ranks);
  }

  // Of each tensor.
  std::map<std::string, at::Tensor> gradients() const {
    std::map<std::string, at::Tensor> all;
    for (const model::Unit* unit : replica.trained_in_forward_order())
      for (const auto& [name, view] : unit->pieces_of(unit->gradients())) all[name] = view.to(at::kCPU, at::kDouble);
    return all;
  }

  at::Device device = test::device();
  comm::Group ranks;
  parallel::Replica replica;
  std::unique_ptr<model::Decoder> model;
  std::unique_ptr<parallel::GradientSums> sums;
  std::string form;
};

double whole_norm(const Step& step) {
  double squares = 0;
  for (const auto& [name, gradient] : step.gradients()) squares += gradient.square().sum().item<double>();
  return std::sqrt(squares);
}

constexpr std::int64_t plenty = std::int64_t(1) << 50;

struct Accumulated {
  std::string name;
  bool lora;
  std::int64_t free_bytes;
  std::string form;
  double tolerance;  // of a tensor's norm
};
void PrintTo(const Accumulated& c, std::ostream* out) { *out << c.name; }

class Accumulation : public testing::TestWithParam<Accumulated> {};

TEST_P(Accumulation, OfEqualMicroBatchesIsTheirSum) {
  const Accumulated& c = GetParam();
  const config::RunConfig config = very_small(c.lora);
  const Step one(config, 2);  // in f32, which is what two of them get
  const auto expected = one.gradients();
  for (const std::int64_t count : {1024, 4096}) {
    const Step many(config, count, c.free_bytes);
    EXPECT_EQ(many.form, c.form);
    EXPECT_NEAR(whole_norm(many) / whole_norm(one), 1, c.tolerance / 2) << count;
    for (const auto& [name, gradient] : many.gradients()) {
      const double tolerance = gradient.numel() < 512 ? 2 * c.tolerance : c.tolerance;  // few roundings do not cancel
      EXPECT_NEAR(gradient.norm().item<double>() / expected.at(name).norm().item<double>(), 1, tolerance) << count << ", " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Accumulation,
                         testing::Values(Accumulated{"f32", false, plenty, "f32", 1e-3},
                                         Accumulated{"flushed", false, 0, "bf16, flushed into f32 every 64 additions (on the host)", 1e-2},
                                         Accumulated{"adapters", true, 0, "f32", 1e-3}),
                         [](const auto& info) { return info.param.name; });

// What the forms are for: without them most of the sum is lost.
TEST(GradientForms, InBf16AloneLosesMost) {
  const config::RunConfig config = very_small();
  const Step two(config, 2), many(config, 1024, 0, /*safe=*/false);
  EXPECT_LT(whole_norm(many) / whole_norm(two), 0.7);
}

TEST(GradientForms, AFewMicroBatchesNeedNoSums) {
  const config::RunConfig config = very_small();
  const Step one(config, 1), few(config, 8, 0), wide(config, 8, plenty);
  EXPECT_EQ(one.form, "bf16, one micro-batch per step");
  EXPECT_EQ(few.form, "bf16, at most 64 additions per step");
  EXPECT_EQ(wide.form, "f32");
  EXPECT_NEAR(whole_norm(few) / whole_norm(wide), 1, 5e-3);
}

// The last byte that f32 gradients need, and one less; with every way of recomputing.
TEST(GradientForms, F32WhereItFitsBesideTheSameActivations) {
  for (const auto recompute : {config::Recompute::automatic, config::Recompute::none, config::Recompute::blocks}) {
    config::RunConfig config = very_small();
    config.trainer.recompute = recompute;
    const parallel::Replica replica = make_units(config, at::kCPU);  // bf16 gradients, 2 bytes of each
    const config::BatchPlan batch{4096, 16, 4096 * 16, 0};
    const auto form = [&](std::int64_t free) { return plan_memory({config, batch, 16, 1, free}, replica, [](bool fits) { return fits; }); };
    const auto all_kept = std::vector(1, recompute == config::Recompute::blocks ? model::Recompute::blocks : model::Recompute::none);
    const std::int64_t need = layout::needed_bytes(config.model, {4096, 16}, 2, all_kept) + layout::beside_steps_bytes(config, 1),
                       more = 2 * replica.gradient_elements();
    EXPECT_EQ(form(need + more).gradients, GradientForm::f32);
    EXPECT_EQ(form(need + more).recompute, all_kept);
    EXPECT_EQ(form(need + more - 1).gradients, GradientForm::flushed);
    EXPECT_EQ(form(need + more - 1).recompute, all_kept) << "gradients take no memory from activations";
    EXPECT_EQ(form(need + more - 1).room_for_sums, more - 1);
  }
}

// A rank with less memory decides for all: they exchange gradients.
TEST(GradientForms, AllRanksTakeOneForm) {
  const config::RunConfig config = very_small();
  const parallel::Replica replica = make_units(config, at::kCPU);
  const config::BatchPlan batch{1, 16, 16, 0};
  EXPECT_EQ(plan_memory({config, batch, 8, 2, plenty}, replica, [](bool) { return false; }).gradients, GradientForm::flushed);
}

}  // namespace
}  // namespace lockstep::train
