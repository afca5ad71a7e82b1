// Stages: layers over lists of streams and a condition, and a model cut into several that hand lists on.
#include "rank/model/stage.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "support/reference/two_stream_layer.h"
#include "unit/model/kinds_fixture.h"

namespace lockstep::model::kinds {
namespace {

class Cut : public testing::TestWithParam<Case> {};

TEST_P(Cut, StagesGiveTheBitsOfTheWhole) {
  const test::Deterministic deterministic;
  for (const Recompute policy : {Recompute::none, Recompute::blocks}) {
    SCOPED_TRACE(fmt::format("policy {}", int(policy)));
    const Result whole = Model(GetParam(), policy, Numbers::whole).run(two_at_once(), 2);
    for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{1}, {2}, {1, 2}}) {
      SCOPED_TRACE(fmt::format("{} stages, the second from layer {}", cuts.size() + 1, cuts.front()));
      expect_same_bits(whole, Model(GetParam(), policy, Numbers::whole, cuts).run(two_at_once(), 2));
    }
    expect_same_bits(whole, Model(GetParam(), policy, Numbers::whole, {1}).run(layout::plain_schedule(kMicroBatches), 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Cut, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST(Stage, APartOfAModelWritesNoText) {
  auto units = test::make_units(config::with_defaults({.hidden_size = 64, .num_layers = 2, .num_heads = 4, .vocab_size = 96}), {});
  WholeStore store(test::pointers(units));
  Decoder part(config::with_defaults({.hidden_size = 64, .num_layers = 2, .num_heads = 4, .vocab_size = 96}), {}, store, {0, 1});
  EXPECT_THROW(part.logits(at::zeros({1, 4}, at::kLong)), base::Bug);
}

// Image and text of different lengths, and what both are told.
struct Pair {
  std::array<at::Tensor, 2> streams;
  at::Tensor condition;
};

Pair pair_of(std::int64_t seed) {
  const auto random = [&](std::int64_t rows) { return at::randn({rows, test::kWidth}, test::generator(50 + seed)).to(test::device()); };
  return {.streams = {random(6), random(3)}, .condition = random(1)};
}

constexpr int kLayers = 4;

// What a flight leaves: what went out, and the gradients of what came in.
struct Outcome {
  std::vector<at::Tensor> out, back;  // image, text, condition of each flight
  std::vector<at::Tensor> gradients;  // of units

  void expect_equal(const Outcome& other) const {
    for (const auto list : {&Outcome::out, &Outcome::back, &Outcome::gradients}) {
      ASSERT_EQ((this->*list).size(), (other.*list).size());
      for (std::size_t i = 0; i < (this->*list).size(); ++i) EXPECT_TRUE(at::equal((this->*list)[i], (other.*list)[i])) << i;
    }
  }
  void expect_near(const Outcome& other) const {
    for (const auto list : {&Outcome::out, &Outcome::back, &Outcome::gradients}) {
      ASSERT_EQ((this->*list).size(), (other.*list).size());
      for (std::size_t i = 0; i < (this->*list).size(); ++i) {
        const at::Tensor &mine = (this->*list)[i], &expected = (other.*list)[i];
        EXPECT_LE((mine - expected).abs().max().item<double>(), 1e-5 * expected.abs().max().item<double>()) << i;
      }
    }
  }
};

struct TwoStreamModel {
  // cut: where the second stage begins, or none.
  explicit TwoStreamModel(std::vector<Recompute> policies, std::size_t flights, std::optional<int> cut = {}) {
    for (int i = 0; i < kLayers; ++i)
      units.push_back(std::make_unique<Unit>(test::two_stream_unit(i), UnitStorage{.device = test::device()}));
    initialize(units, 3);
    store.emplace(test::pointers(units));
    for (const auto& [begin, end] :
         cut ? std::vector<std::pair<int, int>>{{0, *cut}, {*cut, kLayers}} : std::vector{std::pair{0, kLayers}}) {
      std::vector<std::unique_ptr<Layer>> layers;
      for (int i = begin; i < end; ++i) layers.push_back(std::make_unique<test::TwoStreamLayer>(StoredUnit(*store, std::size_t(i))));
      stages.push_back(std::make_unique<Stage>(std::move(layers), test::device(), begin));
      stages.back()->set_recompute({policies.begin() + begin, policies.begin() + end}, /*offload=*/true);
      stages.back()->set_flights(flights);
    }
  }

  void forward(std::int64_t micro, std::size_t flight) {
    const Pair pair = pair_of(micro);
    Border travelling{.streams = {{pair.streams[0], {}}, {pair.streams[1], {}}}, .condition = pair.condition};
    for (const auto& stage : stages) {
      stage->border(flight) = travelling;
      stage->forward({.index = micro}, flight);
      travelling = stage->border(flight);
    }
    for (const ResidualStream& stream : travelling.streams) outcome.out.push_back(stream.residual.clone());
  }

  // Of the sum of what goes out.
  void backward(std::size_t flight) {
    BorderGradient travelling;
    for (const ResidualStream& stream : stages.back()->border(flight).streams) travelling.streams.push_back(at::ones_like(stream.residual));
    travelling.condition = at::zeros_like(stages.back()->border(flight).condition);
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      (*stage)->gradient() = travelling;
      (*stage)->backward({}, flight);
      travelling = (*stage)->gradient();
    }
    for (const at::Tensor& one : {travelling.streams[0], travelling.streams[1], travelling.condition}) outcome.back.push_back(one.clone());
  }

  Outcome run(const std::vector<layout::Action>& schedule, std::size_t flights) {
    for (const auto& [what, micro] : schedule)
      what == layout::Do::forward ? forward(micro, std::size_t(micro) % flights) : backward(std::size_t(micro) % flights);
    for (const auto& unit : units) outcome.gradients.push_back(unit->gradients().clone());
    return outcome;
  }

  std::vector<std::unique_ptr<Unit>> units;
  std::optional<WholeStore> store;
  std::vector<std::unique_ptr<Stage>> stages;
  Outcome outcome;
};

// The same by autograd.
Outcome by_autograd(const std::vector<std::unique_ptr<Unit>>& units) {
  std::vector<std::array<at::Tensor, 3>> weights;
  for (const auto& unit : units) {
    auto& own = weights.emplace_back();
    for (std::size_t i = 0; i < 3; ++i) own[i] = unit->weight(i).detach().clone().requires_grad_(true);
  }
  Outcome outcome;
  for (std::int64_t micro = 0; micro < kMicroBatches; ++micro) {
    const Pair pair = pair_of(micro);
    std::array<at::Tensor, 2> streams;
    for (std::size_t s = 0; s < 2; ++s) streams[s] = pair.streams[s].requires_grad_(true);
    const at::Tensor condition = at::Tensor(pair.condition).requires_grad_(true);
    for (const auto& own : weights) {
      const test::TwoStreams made = test::TwoStreams::forward(streams, condition, own);
      for (std::size_t s = 0; s < 2; ++s) streams[s] = made.streams[s] + made.gate * made.squashed[s];
    }
    (streams[0].sum() + streams[1].sum()).backward();
    for (const at::Tensor& one : streams) outcome.out.push_back(one.detach());
    for (const at::Tensor& one : {pair.streams[0].grad(), pair.streams[1].grad(), condition.grad()}) outcome.back.push_back(one);
  }
  for (const auto& own : weights)
    outcome.gradients.push_back(at::cat({own[0].grad().view(-1), own[1].grad().view(-1), own[2].grad().view(-1)}));
  return outcome;
}

TEST(TwoStreams, ForwardAndBackwardAreThoseOfAutograd) {
  TwoStreamModel model(std::vector<Recompute>(kLayers, Recompute::none), 1);
  Outcome mine = model.run(layout::plain_schedule(kMicroBatches), 1);
  for (at::Tensor& flat : mine.gradients) flat = flat.narrow(0, 0, 3 * test::kWidth * test::kWidth);  // leaves without padding
  mine.expect_near(by_autograd(model.units));
}

TEST(TwoStreams, FlightsRecomputationAndCutsGiveTheSameBits) {
  using enum Recompute;
  const std::vector<Recompute> all(kLayers, none), again(kLayers, blocks), mixed{blocks, none, blocks, none};
  const Outcome plain = TwoStreamModel(all, 1).run(layout::plain_schedule(kMicroBatches), 1);
  const auto same = [&](const std::vector<Recompute>& policies, const std::vector<layout::Action>& schedule, std::size_t flights,
                        std::optional<int> cut = {}) {
    Outcome other = TwoStreamModel(policies, flights, cut).run(schedule, flights);
    plain.expect_equal(other);
  };
  same(again, layout::plain_schedule(kMicroBatches), 1);
  for (const auto& policies : {all, again, mixed}) {
    same(policies, two_at_once(), 2);
    same(policies, two_at_once(), 2, /*cut=*/1);
    same(policies, two_at_once(), 2, /*cut=*/3);
  }
}

}  // namespace
}  // namespace lockstep::model::kinds
