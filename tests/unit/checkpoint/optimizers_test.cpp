// What every optimizer has to keep, saved by any number of ranks and gone on from by any: the same files, the same bits.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "rank/checkpoint/manifest.h"
#include "rank/optim/optim.h"
#include "rank/model/weights/whole_store.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/contents.h"

namespace lockstep::checkpoint {
namespace {

using Kind = config::Optimizer;

struct Method {
  const char* name;
  Kind kind;
  bool masters = true;
};

model::UnitSpec spec_of(int layer) {
  const auto piece = [&](const char* name, std::vector<std::int64_t> shape) {
    return model::Piece{fmt::format("layers.{}.{}", layer, name), std::move(shape)};
  };
  return {.name = fmt::format("block {}", layer),
          .leaves = {{.name = "qkv", .pieces = {piece("q.weight", {64, 70}), piece("k.weight", {33, 70}), piece("v.weight", {65, 70})}},
                     {.name = "norm", .pieces = {piece("norm.weight", {64})}, .init = model::Init::ones, .init_std = 0, .decay = false}}};
}

// Two blocks and their optimizer, some steps on.
struct Trained {
  std::vector<std::unique_ptr<model::Unit>> units;
  std::unique_ptr<model::WholeStore> store;
  std::unique_ptr<optim::Optimizer> optimizer;

  explicit Trained(const Method& method, int steps) {
    std::vector<model::Unit*> all;
    for (int layer = 0; layer < 2; ++layer) {
      units.push_back(std::make_unique<model::Unit>(
          spec_of(layer), model::UnitStorage{.weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16, .master = method.masters}));
      all.push_back(units.back().get());
      fill(units.back()->exact(), 1 + layer);
      units.back()->refresh_weights();
    }
    store = std::make_unique<model::WholeStore>(all);
    optimizer = optim::make_optimizer(*store, {.method = method.kind, .max_grad_norm = 0, .seed = 4});
    for (int step = 0; step < steps; ++step) {
      for (const auto& unit : units) fill(unit->gradients(), 10 + step);
      const at::Tensor one = at::full({}, 1.0, at::kDouble);
      optimizer->finish_gradients(optimizer->sum_of_squares(), one, one);
      optimizer->step(0.01);
    }
  }
  static void fill(const at::Tensor& flat, int salt) { flat.copy_(at::arange(flat.numel(), at::kDouble).mul(0.37 * salt).add(salt).sin()); }

  Contents contents() const {
    Contents contents{.model = {}, .optimizer = {}, .state_json = "{}"};
    for (std::size_t i = 0; i < units.size(); ++i) {
      for (auto& [name, view] : units[i]->pieces_of(units[i]->exact())) contents.model.push_back({name, view, static_cast<int>(i)});
    }
    for (auto& [name, view, shape, begin] : optimizer->named_state())
      contents.optimizer.push_back({name, view, name.find("layers.1.") == std::string::npos ? 0 : 1});
    return contents;
  }
};

class SavedOptimizers : public testing::TestWithParam<Method> {};

TEST_P(SavedOptimizers, AnyNumberOfRanksToAnyNumber) {
  constexpr int rank_counts[] = {1, 2, 3, 5};
  const Contents saved = Trained(GetParam(), 3).contents();
  std::map<std::string, std::string> files;  // as one rank wrote them
  for (const int writers : rank_counts) {
    const support::TemporaryFolder folder;
    support::FaultyFiles disk;
    auto savers = make_savers(disk, folder.path(), writers, {.cut = {.file_bytes = 1000, .slice_bytes = 5000}});
    for (auto& saver : savers) saver->begin(3, saved);
    for (auto& saver : savers) saver->wait();
    const auto checkpoint = step_folder(folder.path(), 3);
    for (const std::string& name : listing(checkpoint)) {
      if (!name.ends_with(".safetensors")) continue;
      const std::string bytes = base::read_text(checkpoint / name);
      if (writers == 1) files[name] = bytes;
      EXPECT_TRUE(files[name] == bytes) << name << " by " << writers;
    }
    EXPECT_EQ(files.size(), 4u);

    for (const int readers : rank_counts) {
      const Contents fresh = Trained(GetParam(), 0).contents();
      const auto restore = [&](const char* kind, const std::vector<NamedTensor>& into, const std::vector<NamedTensor>& expected) {
        ASSERT_EQ(into.size(), expected.size());
        for (int rank = 0; rank < readers; ++rank) {  // each reads its slices
          const Reader reader(checkpoint);
          for (const NamedTensor& tensor : into) {
            const at::Tensor flat = tensor.tensor.view({-1});
            const std::int64_t begin = flat.numel() * rank / readers, end = flat.numel() * (rank + 1) / readers;
            reader.read_slice(kind, tensor.name, begin, flat.narrow(0, begin, end - begin));
          }
        }
        for (std::size_t i = 0; i < into.size(); ++i)
          EXPECT_TRUE(into[i].tensor.equal(expected[i].tensor)) << into[i].name << ": " << writers << " to " << readers;
      };
      restore("model", fresh.model, saved.model);
      restore("optimizer", fresh.optimizer, saved.optimizer);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SavedOptimizers,
                         testing::Values(Method{"adamw", Kind::adamw}, Method{"adamw_bf16", Kind::adamw, false},
                                         Method{"adamw_8bit", Kind::adamw_8bit}, Method{"muon", Kind::muon},
                                         Method{"adafactor", Kind::adafactor}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::checkpoint
