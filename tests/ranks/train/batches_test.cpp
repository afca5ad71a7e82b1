// Batches over real ranks where only the first can reach the data: what it reads, the others are handed.
#include "rank/train/step/batches.h"

#include <gtest/gtest.h>

#include <fstream>

#include "rank/data/text_source.h"
#include "support/ranks/run_ranks.h"
#include "support/temporary_folder.h"
#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

constexpr int ranks = 3;

config::RunConfig settings(const std::filesystem::path& validation) {
  config::RunConfig config = tiny();
  config.data.validation_path = validation.string();
  config.data.distributed_loading = false;
  return config;
}

data::Loader::Options options(int rank) { return {.batch_size = 2, .shard = {rank, ranks}, .shuffle = false, .repeat = false}; }

void write_tokens(const std::filesystem::path& path) {
  std::ofstream file(path, std::ios::binary);
  for (std::uint32_t i = 0; i < 20 * time_steps + 1; ++i) {
    const std::uint32_t token = i * 7 % 96;
    file.write(reinterpret_cast<const char*>(&token), sizeof(token));
  }
}

// Samples, counts and all tokens and targets, in order.
std::vector<double> numbers_of(const std::vector<data::Batch>& batches) {
  std::vector<double> numbers;
  for (const data::Batch& batch : batches) {
    numbers.push_back(double(batch.trained));
    numbers.insert(numbers.end(), batch.samples.begin(), batch.samples.end());
    for (const at::Tensor& field : {data::text(batch).tokens, data::text(batch).targets}) {
      const at::Tensor host = field.cpu().contiguous();
      numbers.insert(numbers.end(), host.const_data_ptr<std::int64_t>(), host.const_data_ptr<std::int64_t>() + host.numel());
    }
  }
  return numbers;
}

TEST(Batches, AValidationSetThatOnlyTheFirstRankCanReadReachesAll) {
  const support::TemporaryFolder folder;
  write_tokens(folder.path() / "validation.bin");
  const auto got = testing::run_ranks(ranks, config::Backend::gloo, [&](comm::World& world) {
    const comm::Group& group = world.everyone();
    const auto config = settings(group.rank() == 0 ? folder.path() / "validation.bin" : "/nowhere/validation.bin");
    const auto task = open_task(group, config);
    const auto source = open_batches(config.data.distributed_loading, task->validation(), options(group.rank()), {});
    std::vector<double> numbers;
    for (auto batches = source->next(group); !batches.empty(); batches = source->next(group)) {
      const std::vector<double> more = numbers_of(batches);
      numbers.insert(numbers.end(), more.begin(), more.end());
    }
    return numbers;
  });
  const config::RunConfig config = settings(folder.path() / "validation.bin");
  const auto task = task::open_task(config);
  for (int rank = 0; rank < ranks; ++rank) {
    data::Loader loader(task->validation(), options(rank), {});
    std::vector<double> expected;
    for (auto batches = loader.next(); !batches.empty(); batches = loader.next()) {
      const std::vector<double> more = numbers_of(batches);
      expected.insert(expected.end(), more.begin(), more.end());
    }
    EXPECT_EQ(got[std::size_t(rank)], expected) << "rank " << rank;
    EXPECT_GT(expected.size(), 4u * time_steps);
  }
}

}  // namespace
}  // namespace lockstep::train
