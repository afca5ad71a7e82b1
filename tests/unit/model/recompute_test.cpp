// Which activations are given up, and in which order, as memory shrinks; and whether blocks hold what is counted.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "rank/model/projection/adapter.h"
#include "layout/recompute.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::model {

using namespace layout;

namespace {

const config::ModelConfig shape =
    config::with_defaults({.hidden_size = 1024, .num_layers = 4, .num_heads = 8, .kv_heads = 2, .vocab_size = 100});
constexpr MicroBatch batch{256, 1024};  // large enough that activations dwarf the fixed reserve
constexpr Recompute policies[] = {Recompute::none, Recompute::norms, Recompute::qkv, Recompute::blocks};

std::int64_t needed(const std::vector<Recompute>& keep) {
  const ActivationBytes b = activation_bytes(shape, 2);
  std::int64_t row = b.working, shared = 0;
  for (const Recompute block : keep) {
    row += b.kept(block);
    shared = std::max(shared, b.shared(block));
  }
  return activation_reserve_bytes + batch.rows() * (row + shared);
}

std::int64_t needed(int all, int norms, int qkv, int input) {
  std::vector<Recompute> keep;
  const int counts[] = {all, norms, qkv, input};
  for (std::size_t i = 0; i < 4; ++i) keep.insert(keep.end(), static_cast<std::size_t>(counts[i]), policies[i]);
  return needed(keep);
}

double cost(const std::vector<Recompute>& keep, std::int64_t time) {
  double sum = 0;
  for (const Recompute block : keep) sum += recompute_cost(shape, time, 2, block);
  return sum;
}

TEST(Recompute, GivesUpTheCheapestFirst) {
  struct Case {
    const char* name;
    std::int64_t available;
    const char* words;
  };
  const Case cases[] = {
      {"plenty", needed(4, 0, 0, 0), "all kept"},
      {"one byte short", needed(4, 0, 0, 0) - 1, "kept whole in 3 blocks, norms recomputed in 1"},
      {"all norms", needed(0, 4, 0, 0), "norms recomputed in 4"},
      {"a matmul in some blocks, and a place for it", needed(0, 4, 0, 0) - 1, "norms recomputed in 2, norms and qkv recomputed in 2"},
      {"a matmul in every block", needed(0, 0, 4, 0), "norms and qkv recomputed in 4"},
      {"blocks whole, and a place for them", needed(0, 0, 4, 0) - 1, "norms recomputed in 2, everything recomputed in 2"},
      {"nothing but inputs", needed(0, 0, 0, 4), "everything recomputed in 4"},
      {"too little anyway", 0, "everything recomputed in 4"},
  };
  for (const Case& c : cases) EXPECT_EQ(describe(choose_recompute(shape, batch, 2, c.available)), c.words) << c.name;
}

// All 256 ways to give four blocks a policy, at every size that one of them just fits and at a byte less.
TEST(Recompute, NoMixThatFitsIsCheaper) {
  std::vector<std::vector<Recompute>> mixes;
  for (int i = 0; i < 256; ++i) mixes.push_back({policies[i % 4], policies[i / 4 % 4], policies[i / 16 % 4], policies[i / 64]});
  for (const std::int64_t time : {256, 65536}) {
    std::vector<std::pair<std::int64_t, double>> sizes;  // what a mix needs, and what it costs
    for (const auto& mix : mixes) sizes.emplace_back(needed(mix), cost(mix, time));
    for (const auto& [just_fits, its_cost] : sizes)
      for (const std::int64_t available : {just_fits, just_fits - 1}) {
        double least = std::numeric_limits<double>::infinity();
        for (const auto& [size, mix_cost] : sizes)
          if (size <= available) least = std::min(least, mix_cost);
        const auto chosen = choose_recompute(shape, {batch.rows() / time, time}, 2, available);
        if (least == std::numeric_limits<double>::infinity()) {
          EXPECT_EQ(describe(chosen), "everything recomputed in 4");
          continue;
        }
        EXPECT_LE(needed(chosen), available) << describe(chosen);
        EXPECT_DOUBLE_EQ(cost(chosen, time), least) << describe(chosen) << " at " << time << " tokens a sample";
      }
  }
}

// Attention alone grows with the length of a sample, and only blocks that are made whole again go through it.
TEST(Recompute, LongSamplesMakeWholeBlocksDear) {
  for (const Recompute keep : policies) {
    const double more = recompute_cost(shape, 65536, 2, keep) - recompute_cost(shape, 1024, 2, keep);
    EXPECT_EQ(more > 0, keep == Recompute::blocks);
  }
  config::ModelConfig deep = shape;  // where matmuls cost more than attention over short samples, and less than over long ones
  deep.hidden_size = 4096;
  deep.intermediate_size = 14336;
  deep.num_layers = 32;
  deep.num_heads = 32;
  deep.kv_heads = 8;
  const auto whole_blocks = [&](std::int64_t samples, std::int64_t time, std::int64_t available) {
    const auto keep = choose_recompute(deep, {samples, time}, 2, available);
    return std::count(keep.begin(), keep.end(), Recompute::blocks);
  };
  bool fewer = false;
  for (std::int64_t available = 0; available < std::int64_t{200} << 30; available += std::int64_t{1} << 30) {
    const auto of_short = whole_blocks(32, 1024, available), of_long = whole_blocks(1, 32768, available);
    EXPECT_LE(of_long, of_short) << available;
    fewer |= of_long < of_short;
  }
  EXPECT_TRUE(fewer);
}

TEST(Recompute, LeavesRoomWhereFewBitsBecomeWhole) {
  EXPECT_EQ(dense_buffer_bytes(shape, 2), 0);
  config::ModelConfig few = shape;
  few.load_in_4bit = true;
  const std::int64_t buffer = 2 * shape.hidden_size * 2 * shape.intermediate_size;  // gate and up are the largest, in 16 bits
  EXPECT_EQ(dense_buffer_bytes(few, 2), buffer);
  EXPECT_EQ(describe(choose_recompute(few, batch, 2, needed(4, 0, 0, 0) + buffer)), "all kept");
  EXPECT_NE(describe(choose_recompute(few, batch, 2, needed(4, 0, 0, 0) + buffer - 1)), "all kept");
}

// Sees what this thread takes from the CPU's allocator and gives back.
class HeldBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    held += bytes;
    most = std::max(most, held);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t held = 0, most = 0;
};

// Between forward and backward.
std::int64_t held_bytes(config::ModelConfig model, std::int64_t layers, Recompute keep, std::int64_t samples, std::int64_t time) {
  model.num_layers = layers;
  auto units = test::make_units(model, {.device = at::kCPU});
  Decoder decoder(model, test::pointers(units), keep);
  const auto given = test::random_batch({.vocab = model.vocab_size, .batch = samples, .time = time}, 1, at::kCPU);
  const auto seen = std::make_shared<HeldBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, seen);
  decoder.forward({.tokens = given.tokens, .targets = given.targets});
  const std::int64_t held = seen->held;
  decoder.backward(at::ones({}));
  return held;
}

TEST(Recompute, BlocksHoldWhatIsCounted) {
  if (!test::device().is_cpu()) GTEST_SKIP() << "counted on a CPU, whose allocator says what it gives";
  for (const bool head_norms : {false, true}) {
    config::ModelConfig model = shape;
    model.hidden_size = 64;
    model.head_dim = 8;
    model.intermediate_size = 160;
    model.max_seq_len = 24;
    model.qk_norm = head_norms;
    const ActivationBytes bytes = activation_bytes(model, 4);
    constexpr std::int64_t samples = 3, time = 24, rows = samples * time;
    for (const Recompute keep : policies) {
      SCOPED_TRACE(fmt::format("{}, head norms {}", describe({keep}), head_norms));
      const std::int64_t few = held_bytes(model, 2, keep, samples, time), many = held_bytes(model, 5, keep, samples, time);
      EXPECT_EQ(many - few, 3 * rows * bytes.kept(keep));
      // What is there once beside the blocks' own; in forward the embedding's output is the first block's input.
      const std::int64_t once = few - rows * (2 * bytes.kept(keep) + bytes.shared(keep));
      EXPECT_LE(once, rows * bytes.working);
      EXPECT_GT(once, 0);
    }
  }
}

// The most that a step holds at once, beside weights and their gradients.
std::int64_t most_bytes(const config::ModelConfig& model, const config::LoraConfig& lora, const MicroBatch& of) {
  auto frozen = test::make_units(model, {.device = at::kCPU, .trainable = false});
  std::vector<std::unique_ptr<Unit>> adapters;
  std::vector<Unit*> list;
  for (auto& spec : adapter_units(model, lora)) {
    adapters.push_back(spec ? std::make_unique<Unit>(std::move(*spec), UnitStorage{.device = at::kCPU}) : nullptr);
    list.push_back(adapters.back().get());
  }
  Decoder decoder(model, test::pointers(frozen), lora, list);
  const auto given = test::random_batch({.vocab = model.vocab_size, .batch = of.samples, .time = of.time}, 1, at::kCPU);
  const at::Tensor keys = lora.dropout > 0 ? at::arange(of.samples, at::kLong) : at::Tensor();
  const auto seen = std::make_shared<HeldBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, seen);
  for (int step = 0; step < 2; ++step)
    decoder.forward_backward({.tokens = given.tokens, .targets = given.targets, .keys = keys}, at::ones({}));
  return seen->most;
}

TEST(Recompute, AdaptersTakeWhatIsCounted) {
  if (!test::device().is_cpu()) GTEST_SKIP() << "counted on a CPU, whose allocator says what it gives";
  config::ModelConfig model = shape;
  model.hidden_size = 64;
  model.head_dim = 8;
  model.intermediate_size = 160;
  model.max_seq_len = 24;
  constexpr MicroBatch of{40, 24};  // more rows than weights have: those that DoRA adds up are not counted
  config::LoraConfig plain;
  plain.enabled = true;
  plain.rank = 16;
  plain.dropout = 0;
  plain.target_modules = {"all-linear"};
  auto dropping = plain, dora = plain;
  dropping.dropout = 0.1;
  dora.dora = true;
  const std::int64_t without = most_bytes(model, {}, of);
  for (const auto& lora : {plain, dropping, dora}) {
    SCOPED_TRACE(fmt::format("dropout {}, DoRA {}", lora.dropout, lora.dora));
    const std::int64_t counted = adapter_bytes(model, lora, of.rows(), 4), taken = most_bytes(model, lora, of) - without;
    EXPECT_LE(taken, counted);
    EXPECT_GT(taken, counted / 2);
  }
  EXPECT_EQ(adapter_bytes(model, {}, of.rows(), 4), 0);
}

}  // namespace
}  // namespace lockstep::model
