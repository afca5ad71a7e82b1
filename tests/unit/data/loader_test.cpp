// The loader: every sample exactly once an epoch, the same global batches for any number of ranks, resume in any other geometry.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "rank/data/text_source.h"

namespace lockstep::data {
namespace {

// Sample s is the tokens 10 s, 10 s + 1, ...; counts what is read and fails where it is told to.
class CountedCorpus final : public Corpus {
 public:
  explicit CountedCorpus(std::int64_t samples, std::int64_t broken = -1) : samples_(samples), broken_(broken) {}
  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_len() const override { return 3; }
  void read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const override {
    ++reads;
    if (sample == broken_) throw base::data_error("data", "sample {} is broken", sample);
    std::iota(tokens.begin(), tokens.end(), 10 * sample);
    std::iota(targets.begin(), targets.end(), 10 * sample + 1);
  }
  std::string fingerprint() const override { return "counted"; }
  mutable std::atomic<std::int64_t> reads = 0;

 private:
  std::int64_t samples_, broken_;
};

struct Geometry {
  std::int64_t ranks, batch, accumulation;
  std::int64_t global() const { return ranks * batch * accumulation; }
};

// All ranks of one run, stepping together as they do in training.
class Ranks {
 public:
  Ranks(const std::shared_ptr<const Corpus>& corpus, const Geometry& geometry, Position start, Loader::Options options = {})
      : geometry_(geometry) {
    for (std::int64_t rank = 0; rank < geometry.ranks; ++rank) {
      options.batch_size = geometry.batch;
      options.gradient_accumulation = geometry.accumulation;
      options.shard = {rank, geometry.ranks};
      options.seed = 17;
      loaders_.push_back(std::make_unique<Loader>(text_source(corpus, 17, false), options, start));
    }
  }

  // The samples of the next global batch in global order, -1 for those of weight 0; empty at the end.
  std::vector<std::int64_t> next() {
    std::vector<std::vector<Batch>> of_rank;
    for (auto& loader : loaders_) of_rank.push_back(loader->next());
    std::vector<std::int64_t> samples;
    for (std::size_t micro_step = 0; micro_step < of_rank[0].size(); ++micro_step) {
      for (const auto& batches : of_rank) {
        EXPECT_EQ(batches.size(), of_rank[0].size());
        check(batches[micro_step]);
        samples.insert(samples.end(), batches[micro_step].samples.begin(), batches[micro_step].samples.end());
      }
    }
    for (const auto& loader : loaders_) {
      EXPECT_EQ(loader->position().epoch, position().epoch);
      EXPECT_EQ(loader->position().sample, position().sample);
    }
    return samples;
  }
  Position position() const { return loaders_[0]->position(); }
  std::int64_t steps_per_epoch() const { return loaders_[0]->steps_per_epoch(); }

 private:
  void check(const Batch& batch) const {
    ASSERT_EQ(text(batch).tokens.sizes(), (at::IntArrayRef{geometry_.batch, 3}));
    ASSERT_EQ(text(batch).targets.sizes(), text(batch).tokens.sizes());
    std::int64_t trained = 0;
    for (std::int64_t row = 0; row < geometry_.batch; ++row) {
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)];
      for (std::int64_t t = 0; t < 3; ++t) {
        const auto token = text(batch).tokens.const_data_ptr<std::int64_t>()[row * 3 + t];
        const auto target = text(batch).targets.const_data_ptr<std::int64_t>()[row * 3 + t];
        EXPECT_EQ(token, sample < 0 ? 0 : 10 * sample + t);
        EXPECT_EQ(target, sample < 0 ? -100 : 10 * sample + t + 1);
      }
      trained += sample < 0 ? 0 : 3;
    }
    EXPECT_EQ(batch.trained, trained);
  }

  Geometry geometry_;
  std::vector<std::unique_ptr<Loader>> loaders_;
};

// What the design promises: positions of epoch after epoch, in order.
std::vector<std::int64_t> global_stream(std::int64_t samples, std::int64_t epochs) {
  std::vector<std::int64_t> stream;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const Order order(samples, 17, epoch, true);
    for (std::int64_t i = 0; i < samples; ++i) stream.push_back(order.sample_at(i));
  }
  return stream;
}

const Geometry geometries[] = {{1, 1, 1}, {1, 4, 1}, {1, 1, 4}, {2, 2, 1}, {4, 1, 1},
                               {2, 1, 2}, {3, 1, 1}, {3, 2, 2}, {5, 3, 2}, {1, 64, 1}};

TEST(Loader, EverySampleOnceAnEpochForAnyGeometry) {
  for (const std::int64_t samples : {1, 2, 3, 11, 12, 13, 16, 59, 60, 61, 64}) {
    const auto corpus = std::make_shared<CountedCorpus>(samples);
    for (const Geometry& geometry : geometries) {
      Ranks ranks(corpus, geometry, {});
      const std::int64_t steps = (samples + geometry.global() - 1) / geometry.global();
      EXPECT_EQ(ranks.steps_per_epoch(), steps);
      std::vector<std::int64_t> seen;
      for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        for (std::int64_t step = 0; step < steps; ++step) {
          EXPECT_EQ(ranks.position().epoch, epoch);
          EXPECT_EQ(ranks.position().sample, step * geometry.global());
          const auto batch = ranks.next();
          EXPECT_EQ(static_cast<std::int64_t>(batch.size()), geometry.global());
          // Only the last batch is short, and what is missing is missing at its end.
          const auto real = std::find(batch.begin(), batch.end(), -1);
          EXPECT_EQ(real - batch.begin(), std::min(geometry.global(), samples - step * geometry.global()));
          seen.insert(seen.end(), batch.begin(), real);
        }
      }
      EXPECT_EQ(seen, global_stream(samples, 3)) << samples << " samples, " << geometry.ranks << " ranks";
    }
  }
}

TEST(Loader, ResumesAtExactlyTheNextSampleInAnyOtherGeometry) {
  const std::int64_t samples = 37;
  const auto corpus = std::make_shared<CountedCorpus>(samples);
  const auto expected = global_stream(samples, 12);
  for (const Geometry& before : geometries) {
    for (const Geometry& after : geometries) {
      for (const std::int64_t stop : {0, 1, 3, 7}) {
        std::vector<std::int64_t> seen;
        Ranks first(corpus, before, {});
        for (std::int64_t step = 0; step < stop; ++step) {
          for (const auto sample : first.next()) seen.push_back(sample);
        }
        Ranks second(corpus, after, first.position());
        for (int step = 0; step < 4; ++step) {
          for (const auto sample : second.next()) seen.push_back(sample);
        }
        std::erase(seen, -1);
        ASSERT_LE(seen.size(), expected.size());
        EXPECT_TRUE(std::equal(seen.begin(), seen.end(), expected.begin()))
            << before.ranks << "x" << before.batch << "x" << before.accumulation << " stopped at " << stop << ", then " << after.ranks
            << "x" << after.batch << "x" << after.accumulation;
      }
    }
  }
}

TEST(Loader, ThreadsAndPrefetchChangeNothing) {
  const auto corpus = std::make_shared<CountedCorpus>(50);
  const auto expected = global_stream(50, 2);
  for (const std::int64_t workers : {0, 1, 2, 7}) {
    for (const std::int64_t prefetch : {0, 1, 2, 5, 40}) {
      Ranks ranks(corpus, {2, 2, 3}, {}, {.prefetch = prefetch, .workers = workers, .pin_memory = true});
      std::vector<std::int64_t> seen;
      while (seen.size() < 100) {
        for (const auto sample : ranks.next()) {
          if (sample >= 0) seen.push_back(sample);
        }
      }
      EXPECT_EQ(seen, expected) << workers << " workers, prefetch " << prefetch;
    }
  }
}

TEST(Loader, ReadsNoFurtherAheadThanAsked) {
  const auto corpus = std::make_shared<CountedCorpus>(1000);
  Loader loader(text_source(corpus, 0, false), {.batch_size = 2, .gradient_accumulation = 2, .prefetch = 3, .workers = 2}, {});
  for (int step = 0; step < 20; ++step) {
    loader.next();
    EXPECT_LE(corpus->reads, 2 * (2 * (step + 1) + 3));
  }
}

TEST(Loader, OneEpochOnly) {
  for (const std::int64_t workers : {0, 2}) {
    for (const std::int64_t samples : {1, 7, 8, 9}) {
      Ranks ranks(std::make_shared<CountedCorpus>(samples), {2, 2, 1}, {}, {.prefetch = 4, .workers = workers, .repeat = false});
      std::vector<std::int64_t> seen;
      for (std::int64_t step = 0; step < (samples + 3) / 4; ++step) {
        for (const auto sample : ranks.next()) seen.push_back(sample);
      }
      EXPECT_TRUE(ranks.next().empty());
      EXPECT_TRUE(ranks.next().empty());
      std::erase(seen, -1);
      EXPECT_EQ(seen, global_stream(samples, 1));
    }
  }
}

TEST(Loader, WithoutShuffleSamplesComeInOrder) {
  Ranks ranks(std::make_shared<CountedCorpus>(6), {2, 1, 1}, {}, {.shuffle = false});
  for (std::int64_t first = 0; first < 6; first += 2) EXPECT_EQ(ranks.next(), (std::vector<std::int64_t>{first, first + 1}));
}

TEST(Loader, AnErrorOfAReaderIsThrownByNextInItsTurn) {
  for (const std::int64_t workers : {0, 1, 3}) {
    const auto corpus = std::make_shared<CountedCorpus>(20, 5);
    Loader loader(text_source(corpus, 0, false), {.batch_size = 2, .shuffle = false, .prefetch = 6, .workers = workers}, {});
    EXPECT_EQ(loader.next()[0].samples, (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(loader.next()[0].samples, (std::vector<std::int64_t>{2, 3}));
    for (int again = 0; again < 2; ++again) {
      try {
        loader.next();
        FAIL() << "sample 5 is broken";
      } catch (const base::UserError& error) {
        EXPECT_STREQ(error.what(), "[data] sample 5 is broken");
      }
    }
  }
}

TEST(Loader, StopsWhileReadersAreBusyOrWaiting) {
  for (int round = 0; round < 50; ++round) {
    const auto corpus = std::make_shared<CountedCorpus>(100000);
    {
      Loader loader(text_source(corpus, 0, false), {.batch_size = 8, .prefetch = 16, .workers = 4}, {});
      if (round % 2) EXPECT_EQ(loader.next().size(), 1u);
    }
    EXPECT_EQ(corpus.use_count(), 1) << "a reader outlived its loader";
    EXPECT_LE(corpus->reads, 8 * (1 + 16 + 4)) << "readers run no further ahead than prefetch says";
  }
}

TEST(Loader, APositionOutsideTheDataIsRefused) {
  const auto corpus = std::make_shared<CountedCorpus>(10);
  EXPECT_THROW(Loader(text_source(corpus, 0, false), {}, {0, 11}), base::UserError);
  Loader at_end(text_source(corpus, 0, false), {}, {3, 10});  // the end of an epoch is the start of the next
  EXPECT_EQ(at_end.position().epoch, 4);
  EXPECT_EQ(at_end.position().sample, 0);
}

}  // namespace
}  // namespace lockstep::data
