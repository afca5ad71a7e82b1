// What every method must do on every device: learn, skip what is not finite, clear gradients, name its states, agree with a CPU.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <set>

#include "rank/optim/muon.h"
#include "rank/optim/optim.h"
#include "rank/model/weights/whole_store.h"
#include "support/reference/test_device.h"

namespace lockstep::optim {
namespace {

using Kind = config::Optimizer;

struct Method {
  const char* name;
  Kind method;
  bool masters;
  std::vector<std::string> states;  // kinds, in the order of named_state
};

const Method kMethods[] = {
    {"adamw", Kind::adamw, true, {"exp_avg", "exp_avg_sq"}},
    {"adamw_bf16", Kind::adamw, false, {"exp_avg", "exp_avg_sq"}},
    {"adamw_8bit", Kind::adamw_8bit, true, {"exp_avg", "exp_avg_scale", "exp_avg_sq", "exp_avg_sq_scale"}},
    {"adamw_8bit_bf16", Kind::adamw_8bit, false, {"exp_avg", "exp_avg_scale", "exp_avg_sq", "exp_avg_sq_scale"}},
    {"sgd", Kind::sgd, true, {"momentum_buffer"}},
    {"sgd_bf16", Kind::sgd, false, {"momentum_buffer"}},
    {"lion", Kind::lion, true, {"exp_avg"}},
    {"lion_bf16", Kind::lion, false, {"exp_avg"}},
    {"adafactor", Kind::adafactor, true, {"exp_avg_sq", "exp_avg_sq_col", "exp_avg_sq_row"}},
    {"adafactor_bf16", Kind::adafactor, false, {"exp_avg_sq", "exp_avg_sq_col", "exp_avg_sq_row"}},
    {"muon", Kind::muon, true, {"exp_avg", "exp_avg_sq", "momentum_buffer"}},
    {"muon_bf16", Kind::muon, false, {"exp_avg", "exp_avg_sq", "momentum_buffer"}},
};

model::UnitSpec spec() {
  return {.name = "unit",
          .leaves = {{.name = "e", .pieces = {{"e", {80, 64}}}, .role = model::Role::token_embedding},
                     {.name = "qkv", .pieces = {{"q", {64, 70}}, {"k", {33, 70}}, {"v", {64, 70}}}},
                     {.name = "n", .pieces = {{"n", {64}}}, .init = model::Init::ones, .init_std = 0, .decay = false}}};
}

at::Tensor scalar(double value, const at::Device& device) { return at::full({}, value, at::TensorOptions().dtype(at::kDouble)).to(device); }

struct Training {
  model::Unit unit;
  model::WholeStore store{{&unit}};
  std::unique_ptr<Optimizer> optimizer;
  Training(const Method& m, const at::Device& device)
      : unit(spec(), {.device = device, .weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16, .master = m.masters}) {
    int seed = 50;
    for (const auto& [name, view] : unit.pieces_of(unit.exact())) view.copy_(at::randn(view.sizes(), test::generator(seed++)));
    unit.refresh_weights();
    optimizer = make_optimizer(store, {.method = m.method, .max_grad_norm = 0, .seed = 4});
  }
  void step(int number, double rate) {
    int seed = 100 * number;
    for (const auto& [name, view] : unit.pieces_of(unit.gradients())) view.copy_(at::randn(view.sizes(), test::generator(seed++)));
    finish(rate);
  }
  void finish(double rate) {
    const auto device = unit.weights().device();
    optimizer->finish_gradients(optimizer->sum_of_squares(), scalar(1, device), scalar(1, device));
    optimizer->step(rate);
  }
};

class Methods : public testing::TestWithParam<Method> {};

TEST_P(Methods, GoDownhill) {
  Training s(GetParam(), test::device());
  const auto distance = [&] { return s.unit.weights().to(at::kDouble).pow(2).sum().item<double>(); };
  const double before = distance();
  for (int step = 0; step < 30; ++step) {
    s.unit.gradients().copy_(s.unit.weights());  // of half the squared distance to zero
    s.finish(0.02);
    EXPECT_EQ(s.unit.gradients().abs().max().item<double>(), 0) << "gradients are zero for the next step";
  }
  EXPECT_LT(distance(), 0.8 * before);
  EXPECT_EQ(s.optimizer->report().updates, 30);
  auto padding = at::ones({s.unit.elements()}, s.unit.weights().options().dtype(at::kFloat));
  for (const auto& [name, view] : s.unit.pieces_of(padding)) view.fill_(0);
  EXPECT_EQ((s.unit.weights().to(at::kFloat) * padding).abs().max().item<double>(), 0) << "padding stays zero";
}

TEST_P(Methods, SkipWhatIsNotFinite) {
  Training s(GetParam(), test::device());
  s.step(1, 0.01);
  std::vector<at::Tensor> before = {s.unit.exact().clone(), s.unit.weights().clone()};
  for (const auto& [name, view, shape, begin] : s.optimizer->named_state()) before.push_back(view.clone());
  s.unit.gradients()[7].fill_(NAN);
  s.finish(0.01);
  EXPECT_TRUE(s.optimizer->report().skipped);
  EXPECT_EQ(s.unit.gradients().abs().max().item<double>(), 0);
  EXPECT_TRUE(at::equal(before[0], s.unit.exact()) && at::equal(before[1], s.unit.weights()));
  std::size_t next = 2;
  for (const auto& [name, view, shape, begin] : s.optimizer->named_state()) EXPECT_TRUE(at::equal(before[next++], view)) << name;
}

TEST_P(Methods, NameTheirStatesAndGoOnFromThem) {
  Training never(GetParam(), test::device()), stopped(GetParam(), test::device()), resumed(GetParam(), test::device());
  for (int step = 1; step <= 6; ++step) never.step(step, 0.01);
  for (int step = 1; step <= 3; ++step) stopped.step(step, 0.01);
  std::set<std::string> kinds;
  const auto from = stopped.optimizer->named_state(), to = resumed.optimizer->named_state();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    kinds.insert(from[i].name.substr(0, from[i].name.find('.')));
    to[i].view.copy_(from[i].view);
  }
  EXPECT_EQ((std::vector<std::string>(kinds.begin(), kinds.end())), GetParam().states);
  resumed.unit.exact().copy_(stopped.unit.exact());
  resumed.unit.refresh_weights();
  resumed.optimizer->restore_control(3, 1, 3, 0);
  for (int step = 4; step <= 6; ++step) resumed.step(step, 0.01);
  EXPECT_TRUE(at::equal(resumed.unit.exact(), never.unit.exact()));
}

// Machines of a run may have different processors: a step is the same bits with any number of threads. Matrices large enough for ATen to
// cut its own sums by threads, thin ones that BLAS cuts by threads, and more units than one thread would sum the squares of.
TEST_P(Methods, AreTheSameBitsWithAnyNumberOfThreads) {
  const auto run = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    std::vector<std::unique_ptr<model::Unit>> units;
    for (int i = 0; i < 70; ++i) {
      model::UnitSpec spec{.name = fmt::format("unit {}", i), .leaves = {{.name = "n", .pieces = {{"n", {640}}}, .decay = false}}};
      if (i < 2) spec.leaves = {{.name = "w", .pieces = {{"large", {700, 512}}, {"wide", {24, 512}}}}};
      if (i == 2) spec.leaves = {{.name = "w", .pieces = {{"thin", {16, 8192}}}}};
      units.push_back(std::make_unique<model::Unit>(
          spec, model::UnitStorage{.weight_dtype = at::kBFloat16, .gradient_dtype = at::kFloat, .master = GetParam().masters}));
      units.back()->exact().copy_(at::randn({units.back()->elements()}, test::generator(i)));
      units.back()->refresh_weights();
    }
    std::vector<model::Unit*> list;
    for (const auto& unit : units) list.push_back(unit.get());
    const model::WholeStore store(list);
    const auto optimizer = make_optimizer(store, {.method = GetParam().method, .max_grad_norm = 0.1, .seed = 4});
    std::vector<at::Tensor> results;
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < list.size(); ++i)
        list[i]->gradients().copy_(at::randn({list[i]->elements()}, test::generator(1000 * step + 7 * i)));
      optimizer->finish_gradients(optimizer->sum_of_squares(), scalar(1, at::kCPU), scalar(1, at::kCPU));
      results.push_back(optimizer->control().clone());
      optimizer->step(0.01);
    }
    for (const model::Unit* unit : list) results.push_back(unit->exact());
    for (const auto& [name, view, shape, begin] : optimizer->named_state()) results.push_back(view);
    at::set_num_threads(before);
    return results;
  };
  const auto one = run(1);
  for (const int threads : {2, 3}) {
    const auto several = run(threads);
    ASSERT_EQ(one.size(), several.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      ASSERT_TRUE(at::equal(one[i], several[i])) << i << " of " << one.size() << ", threads " << threads;
  }
}

TEST_P(Methods, AgreeWithACpu) {
  if (test::device().is_cpu()) GTEST_SKIP() << "needs a GPU: compares one with a CPU";
  Training here(GetParam(), test::device()), there(GetParam(), at::kCPU);
  const auto start = here.unit.exact().to(at::kCPU, at::kDouble);
  for (int step = 1; step <= 6; ++step) here.step(step, 0.01), there.step(step, 0.01);
  const auto mine = here.unit.exact().cpu(), theirs = there.unit.exact();
  const auto method = GetParam().method;
  if (method != Kind::muon && method != Kind::adafactor) {
    EXPECT_TRUE(at::equal(mine, theirs)) << "number by number: the same bits";
    return;
  }
  // Sums in another order, and Muon's matrix products in bf16; bf16 weights then round differently here and there.
  const double moved = (theirs.to(at::kDouble) - start).norm().item<double>();
  const double share = GetParam().masters ? (method == Kind::muon ? 3e-2 : 1e-4) : 0.2;
  EXPECT_LE((mine.to(at::kDouble) - theirs.to(at::kDouble)).norm().item<double>(), share * moved);
}

INSTANTIATE_TEST_SUITE_P(All, Methods, testing::ValuesIn(kMethods), [](const auto& info) { return std::string(info.param.name); });

TEST(Muon, OrthogonalisesTallAndWideMatrices) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {32, 160}, {160, 32}, {1, 9}}) {
    const auto u = orthogonalized(at::randn({rows, columns}, test::generator(3)).to(test::device())).to(at::kCPU, at::kDouble);
    EXPECT_EQ(u.sizes(), (at::IntArrayRef{rows, columns}));
    const auto gram = rows < columns ? u.mm(u.t()) : u.t().mm(u);
    const auto diagonal = gram.diagonal();
    EXPECT_GT(diagonal.min().item<double>(), 0.4) << rows << " x " << columns;  // singular values of about 0.7 to 1.2, squared
    EXPECT_LT(diagonal.max().item<double>(), 1.5) << rows << " x " << columns;
    EXPECT_LT((gram - diagonal.diag()).abs().max().item<double>(), 0.25);
  }
}

TEST(Groups, RatesFollowTheRole) {
  model::UnitSpec roles = spec();
  roles.leaves[1].role = model::Role::adapter_b;
  model::Unit unit(roles, {.device = test::device()});
  const model::WholeStore store({&unit});
  const auto optimizer =
      make_optimizer(store, {.epsilon = 1e-30, .weight_decay = 0, .embedding_rate = 0.5, .adapter_b_rate = 4, .max_grad_norm = 0});
  unit.gradients().fill_(1);
  optimizer->finish_gradients(optimizer->sum_of_squares(), scalar(1, test::device()), scalar(1, test::device()));
  optimizer->step(0.01);
  for (const auto& [name, view] : unit.pieces_of(unit.weights())) {  // the first step of AdamW is the learning rate
    const double rate = name == "e" ? 0.005 : (name == "n" ? 0.01 : 0.04);
    EXPECT_NEAR(view.min().item<double>(), -rate, 1e-7) << name;
    EXPECT_NEAR(view.max().item<double>(), -rate, 1e-7) << name;
  }
}

TEST(Groups, FrozenUnitsAreLeftOut) {
  model::Unit trained(spec(), {.device = test::device()}), frozen(spec(), {.device = test::device(), .trainable = false});
  const model::WholeStore store({&frozen, &trained});
  const auto optimizer = make_optimizer(store, {});
  EXPECT_EQ(optimizer->named_state().size(), 2u * 5u);
}

}  // namespace
}  // namespace lockstep::optim
