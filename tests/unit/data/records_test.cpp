// Records in batches: masks, padding and packs, the same global batches for any number of ranks, a split that stays.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "rank/data/record_corpus.h"
#include "rank/data/text_source.h"
#include "corpus/prepare/cache.h"
#include "support/temporary_folder.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t seq_len = 128;

// Record r has 2 + (37 r mod 120) tokens: 1000 r, 1000 r + 1, ... of which the second half is trained. Every third one is a pair of pieces.
class Records : public ::testing::Test {
 protected:
  std::shared_ptr<const corpus::Cache> make(int count) {
    const std::string key(32, 'k');
    corpus::CacheWriter writer(base::real_files(), folder_.path() / "cache.lsd", key);
    corpus::Counts counts;
    for (int i = 0; i < count; ++i) {
      const int length = 2 + 37 * i % 120;
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
      std::iota(tokens.begin(), tokens.end(), 1000 * i);
      std::vector<std::uint8_t> trained(tokens.size(), 0);
      std::fill(trained.begin() + length / 2, trained.end(), 1);
      writer.add(tokens, trained, {0, 0, static_cast<std::uint32_t>(i + 1), static_cast<std::uint64_t>(i / 3 * 3 + (i % 3 == 2 ? 1 : 0))});
    }
    writer.finish(counts);
    return corpus::Cache::open(folder_.path() / "cache.lsd", key, corpus::Cache::Verify::content);
  }
  std::shared_ptr<const Corpus> corpus(int count, bool packed) {
    const auto cache = make(count);
    std::vector<std::uint32_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0u);
    auto plain = std::make_shared<RecordCorpus>(cache, all, seq_len, "training");
    if (!packed) return plain;
    return std::make_shared<PackedCorpus>(plain, 17, true);
  }
  support::TemporaryFolder folder_;
};

// Every record of a batch: its number, and the targets it trains.
using Trained = std::map<std::int64_t, std::vector<std::int64_t>>;

// Cuts a batch into its records and checks that each is whole, in its place, and padded with nothing that is trained.
void collect(const Batch& batch, const Corpus& corpus, Trained& trained) {
  const std::int64_t rows = text(batch).tokens.size(0), time = text(batch).tokens.size(1);
  const auto* tokens = text(batch).tokens.const_data_ptr<std::int64_t>();
  const auto* targets = text(batch).targets.const_data_ptr<std::int64_t>();
  std::vector<std::int32_t> starts;
  if (text(batch).starts.defined()) {
    ASSERT_EQ(time, seq_len);
    ASSERT_EQ(text(batch).starts.scalar_type(), at::kInt);
    starts.assign(text(batch).starts.const_data_ptr<std::int32_t>(),
                  text(batch).starts.const_data_ptr<std::int32_t>() + text(batch).starts.numel());
    for (std::int64_t row = 0; row < rows; ++row)
      EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), row * time)) << "a row starts a record";
  } else {
    for (std::int64_t row = 0; row <= rows; ++row) starts.push_back(static_cast<std::int32_t>(row * time));
    EXPECT_TRUE(time % 64 == 0 && time <= corpus.seq_len());
  }
  ASSERT_EQ(starts.front(), 0);
  ASSERT_EQ(starts.back(), rows * time);
  std::int64_t counted = 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    ASSERT_LT(starts[i], starts[i + 1]);
    const std::int64_t* first = tokens + starts[i];
    std::vector<std::int64_t> learned;
    for (std::int64_t at = starts[i]; at < starts[i + 1]; ++at) {
      if (targets[at] == untrained) continue;
      EXPECT_EQ(targets[at], tokens[at] + 1);  // the next token of the same record
      EXPECT_EQ(tokens[at] / 1000, *first / 1000);
      learned.push_back(targets[at]);
    }
    counted += static_cast<std::int64_t>(learned.size());
    if (learned.empty()) continue;  // padding
    EXPECT_TRUE(trained.emplace(*first / 1000, learned).second) << "record " << *first / 1000 << " came twice";
  }
  EXPECT_EQ(batch.trained, counted);
}

struct RankGeometry {
  std::int64_t ranks, batch, accumulation;
};

TEST_F(Records, AnyNumberOfRanksTrainsTheSameTokensInEachGlobalBatch) {
  for (const bool packed : {false, true}) {
    const auto records = corpus(101, packed);
    ASSERT_EQ(records->packed(), packed);
    std::vector<Trained> expected;
    for (const RankGeometry& geometry : {RankGeometry{1, 12, 1}, {1, 1, 12}, {2, 3, 2}, {3, 2, 2}, {4, 3, 1}, {12, 1, 1}}) {
      std::vector<Trained> steps;
      std::vector<std::unique_ptr<Loader>> ranks;
      for (std::int64_t rank = 0; rank < geometry.ranks; ++rank) {
        ranks.push_back(std::make_unique<Loader>(
            text_source(records, 5, false),
            Loader::Options{
                .batch_size = geometry.batch, .gradient_accumulation = geometry.accumulation, .shard = {rank, geometry.ranks}, .seed = 5},
            Position{}));
      }
      const std::int64_t epoch = ranks[0]->steps_per_epoch();
      Trained whole_epoch;
      for (std::int64_t step = 0; step < 2 * epoch; ++step) {
        steps.emplace_back();
        for (auto& rank : ranks) {
          for (const Batch& batch : rank->next()) collect(batch, *records, steps.back());
        }
        if (step < epoch) whole_epoch.insert(steps.back().begin(), steps.back().end());
      }
      EXPECT_EQ(whole_epoch.size(), 101u) << "every record once an epoch";
      if (expected.empty()) expected = steps;
      EXPECT_EQ(steps, expected) << geometry.ranks << " ranks, batch " << geometry.batch;
    }
    EXPECT_NE(expected.front(), expected[expected.size() / 2]) << "epochs differ";
  }
}

TEST_F(Records, AResumedLoaderGoesOnWithTheSamePacks) {
  const auto records = corpus(300, true);
  const Loader::Options options{.batch_size = 2, .seed = 5};
  Loader whole(text_source(records, 5, false), options, {});
  for (int step = 0; step < 7; ++step) whole.next();
  Loader resumed(text_source(corpus(300, true), 5, false), options, whole.position());
  for (int step = 0; step < 60; ++step) {
    const Batch one = whole.next()[0], other = resumed.next()[0];
    EXPECT_TRUE(text(one).tokens.equal(text(other).tokens) && text(one).targets.equal(text(other).targets) &&
                text(one).starts.equal(text(other).starts));
  }
}

TEST_F(Records, PacksHoldSeveralRecordsAndWasteLittle) {
  const auto cache = make(2000);
  std::vector<std::uint32_t> all(2000);
  std::iota(all.begin(), all.end(), 0u);
  const auto plain = std::make_shared<RecordCorpus>(cache, all, seq_len, "training");
  for (const bool shuffle : {true, false}) {
    const PackedCorpus packed(plain, 1, shuffle);
    EXPECT_LT(packed.samples(), 1100);
    EXPECT_GT(packed.fill(), 0.9);
  }
  EXPECT_NE(PackedCorpus(plain, 1, true).starts(0), std::vector<std::int32_t>{});
  EXPECT_NE(plain->fingerprint(), PackedCorpus(plain, 1, true).fingerprint());
}

TEST_F(Records, ASplitKeepsRecordsWholeAndIsTheSameEveryTime) {
  const auto cache = make(300);
  const Split parts = split(*cache, 0.1), again = split(*cache, 0.1);
  EXPECT_EQ(parts.validation, again.validation);
  EXPECT_EQ(parts.training.size() + parts.validation.size(), 300u);
  std::set<std::uint64_t> training, validation;
  for (const auto sample : parts.training) training.insert(cache->entry(sample).record);
  for (const auto sample : parts.validation) validation.insert(cache->entry(sample).record);
  EXPECT_EQ(validation.size(), 20u);  // of 200 records
  for (const auto record : validation) EXPECT_FALSE(training.contains(record));
  EXPECT_GT(*validation.rbegin() - *validation.begin(), 100u) << "drawn from everywhere";
  EXPECT_TRUE(split(*cache, 0).validation.empty());
  EXPECT_FALSE(split(*cache, 0.999).training.empty());
  EXPECT_TRUE(split(*make(1), 0.9).validation.empty());
}

}  // namespace
}  // namespace lockstep::data
