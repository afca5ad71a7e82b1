// Made here and now, and kept.
#include "rank/data/stories.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/hash/crc32c.h"

namespace lockstep::data {
namespace {

class StoryTokens final : public Tokens {
 public:
  StoryTokens(const corpus::StoryMaker& maker, std::int64_t stories, std::int64_t seed)
      : stories_(stories), seed_(seed), tokens_(corpus::make_stories(maker, stories, seed)) {}
  std::int64_t count() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t first, std::span<std::int64_t> tokens) const override {
    base::check(first >= 0 && first + static_cast<std::int64_t>(tokens.size()) <= count(), "stories are read within their tokens");
    std::copy_n(tokens_.begin() + first, tokens.size(), tokens.begin());
  }
  std::string identity() const override {
    const auto bytes = std::as_bytes(std::span(tokens_));
    return fmt::format("{} built-in stories, seed {}, crc32c {:08x}", stories_, seed_, base::crc32c(bytes));
  }

 private:
  std::int64_t stories_, seed_;
  std::vector<std::uint16_t> tokens_;
};

}  // namespace

std::shared_ptr<const Tokens> story_tokens(const corpus::StoryMaker& maker, std::int64_t stories, std::int64_t seed) {
  return std::make_shared<StoryTokens>(maker, stories, seed);
}

}  // namespace lockstep::data
