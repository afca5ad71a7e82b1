// Random tokens: load without structure, for measuring speed.
#include "base/hash/draws.h"
#include "base/error.h"
#include "rank/data/tokens.h"

namespace lockstep::data {
namespace {

class RandomTokens final : public Tokens {
 public:
  RandomTokens(std::int64_t count, std::int64_t vocab_size, std::int64_t seed) : count_(count), vocab_size_(vocab_size), seed_(seed) {}

  std::int64_t count() const override { return count_; }
  void read(std::int64_t first, std::span<std::int64_t> tokens) const override {
    base::check(first >= 0 && first + static_cast<std::int64_t>(tokens.size()) <= count_, "random tokens are read within their count");
    const auto key = base::mix(static_cast<std::uint64_t>(seed_));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto bits = base::mix(key ^ static_cast<std::uint64_t>(first + static_cast<std::int64_t>(i)));
      tokens[i] = static_cast<std::int64_t>(base::below(static_cast<std::uint64_t>(vocab_size_), bits));
    }
  }
  std::string identity() const override { return fmt::format("random tokens below {}, seed {}", vocab_size_, seed_); }

 private:
  std::int64_t count_, vocab_size_, seed_;
};

}  // namespace

std::shared_ptr<const Tokens> random_tokens(std::int64_t count, std::int64_t vocab_size, std::int64_t seed) {
  return std::make_shared<RandomTokens>(count, vocab_size, seed);
}

}  // namespace lockstep::data
