// Saving and reading back: any number of writers, whole or not there.
#include <gtest/gtest.h>

#include <fstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "base/error.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/manifest.h"
#include "support/temporary_folder.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

// Numbers that differ between tensors and steps, so that a mix-up shows.
Contents contents_of(std::int64_t step) {
  Contents contents{.model = {}, .optimizer = {}, .state_json = fmt::format("{{\"step\": {}}}", step)};
  const std::vector<std::vector<std::int64_t>> shapes = {{64, 32}, {32}, {7, 3, 5}, {}, {0, 4}, {1000}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::int64_t elements = 1;
    for (const auto size : shapes[i]) elements *= size;
    const auto numbers = [&](std::int64_t salt) {
      return at::arange(elements, at::kFloat).add(static_cast<double>(step * 1000 + salt)).view(shapes[i]);
    };
    const std::string name = fmt::format("model.layers.{}.weight", i);
    const auto index = static_cast<std::int64_t>(i);
    contents.model.push_back({name, numbers(index)});
    contents.optimizer.push_back({"exp_avg." + name, numbers(100 + index)});
    contents.optimizer.push_back({"exp_avg_sq." + name, numbers(200 + index).to(i % 2 ? at::kBFloat16 : at::kFloat)});
  }
  return contents;
}

void save_all(const fs::path& folder, int writers, std::int64_t step, const Saver::Options& base_options = {}) {
  std::vector<std::unique_ptr<Saver>> savers;
  for (int writer = 0; writer < writers; ++writer) {
    auto options = base_options;
    options.folder = folder;
    options.share = {writer, writers};
    savers.push_back(std::make_unique<Saver>(base::real_files(), options));
  }
  for (auto& saver : savers) saver->begin(step, contents_of(step));
  for (auto& saver : savers) saver->wait();
}

void expect_holds(const Reader& reader, std::int64_t step) {
  const Contents expected = contents_of(step);
  EXPECT_EQ(reader.state_json(), expected.state_json);
  const std::pair<std::string, const std::vector<NamedTensor>*> lists[] = {{"model", &expected.model}, {"optimizer", &expected.optimizer}};
  for (const auto& [kind, tensors] : lists) {
    EXPECT_EQ(reader.names(kind).size(), tensors->size());
    for (const auto& [name, tensor] : *tensors) {
      const auto read = at::empty_like(tensor);
      reader.read(kind, name, read);
      EXPECT_TRUE(at::equal(read, tensor)) << name;
    }
  }
}

TEST(Checkpoint, AnyNumberOfWritersReadBackTheSame) {
  for (const int writers : {1, 2, 3, 20}) {
    for (const bool asynchronous : {true, false}) {
      if (!asynchronous && writers > 1) continue;  // writer 0 would wait for those that have not begun
      const support::TemporaryFolder folder;
      save_all(folder.path(), writers, 5, {.asynchronous = asynchronous});
      std::vector<std::string> skipped;
      const auto newest = newest_whole(folder.path(), &skipped);
      ASSERT_TRUE(newest) << writers;
      EXPECT_EQ(newest->filename(), "step-000005");
      EXPECT_TRUE(skipped.empty());
      const Reader reader(*newest);
      reader.verify();
      expect_holds(reader, 5);
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
