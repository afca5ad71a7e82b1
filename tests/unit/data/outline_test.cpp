// A dataset's outline gives batches of the same shapes, samples and starts, without looking at the data.
#include "rank/data/outline.h"

#include <gtest/gtest.h>

#include <numeric>

#include "rank/data/text_source.h"

namespace lockstep::data {
namespace {

// Rows of two records each, of lengths that differ.
class Rows final : public Corpus {
 public:
  explicit Rows(bool packed) : packed_(packed) {}
  std::int64_t samples() const override { return 11; }
  std::int64_t seq_len() const override { return 200; }
  std::int64_t length(std::int64_t sample) const override { return 20 + 13 * sample; }
  bool fixed_length() const override { return false; }
  bool packed() const override { return packed_; }
  std::vector<std::int32_t> starts(std::int64_t sample) const override { return {0, static_cast<std::int32_t>(7 + sample)}; }
  void read(std::int64_t sample, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const override {
    std::iota(tokens.begin(), tokens.end(), 100 * sample);
    std::iota(targets.begin(), targets.end(), 100 * sample + 1);
  }
  std::string fingerprint() const override { return "rows"; }

 private:
  bool packed_;
};

TEST(Outline, HasTheShapesAndNothingElse) {
  for (const bool packed : {false, true}) {
    const Dataset whole{
        .training = std::make_shared<Rows>(packed), .validation = nullptr, .language = nullptr, .description = "rows of a test"};
    const Dataset outline = dataset_of_outline(outline_of(whole));
    EXPECT_EQ(outline.description, whole.description);
    EXPECT_EQ(outline.validation, nullptr);
    EXPECT_EQ(outline.training->fingerprint(), "rows");
    const Loader::Options options{.batch_size = 2, .gradient_accumulation = 2, .seed = 3};
    Loader one(text_source(whole.training, 3, true), options, {}), other(text_source(outline.training, 3, true), options, {});
    for (int step = 0; step < 5; ++step) {
      const auto expected = one.next(), given = other.next();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(given[i].samples, expected[i].samples);
        const TextFields a = text(expected[i]), b = text(given[i]);
        EXPECT_EQ(b.tokens.sizes(), a.tokens.sizes());
        EXPECT_TRUE(b.keys.equal(a.keys));
        ASSERT_EQ(b.starts.defined(), packed);
        if (packed) EXPECT_TRUE(b.starts.equal(a.starts));
        EXPECT_FALSE(b.tokens.equal(a.tokens));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::data
