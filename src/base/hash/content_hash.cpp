// Two lanes of multiply-and-fold over 16 bytes at a time.
#include "base/hash/content_hash.h"

#include <fmt/format.h>

#include <cstring>

namespace lockstep::base {
namespace {

// Both halves of the product: every bit of the inputs reaches the result.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

constexpr std::uint64_t odd_one = 0xa4093822299f31d1ull, odd_two = 0x082efa98ec4e6c89ull, odd_three = 0x452821e638d01377ull;

}  // namespace

ContentHash& ContentHash::add(std::string_view bytes) {
  std::uint64_t a = 0, b = 0;
  const auto step = [&] {
    one_ = fold(one_ ^ a ^ odd_one, b ^ odd_two) + a;
    two_ = fold(two_ ^ b ^ odd_three, a ^ odd_one) + b;
  };
  std::size_t at = 0;
  for (; at + 16 <= bytes.size(); at += 16) {
    std::memcpy(&a, bytes.data() + at, 8);
    std::memcpy(&b, bytes.data() + at + 8, 8);
    step();
  }
  char rest[16] = {};
  if (at < bytes.size()) std::memcpy(rest, bytes.data() + at, bytes.size() - at);
  std::memcpy(&a, rest, 8);
  std::memcpy(&b, rest + 8, 8);
  step();
  a = bytes.size();
  b = ~a;
  step();
  return *this;
}

ContentHash& ContentHash::add(std::int64_t number) { return add(std::string_view(reinterpret_cast<const char*>(&number), sizeof number)); }

std::string ContentHash::hex() const {
  const std::uint64_t first = fold(one_ ^ odd_two, two_ ^ odd_one), second = fold(two_ ^ odd_three, one_ ^ odd_two);
  return fmt::format("{:016x}{:016x}", first ^ one_, second ^ two_);
}

}  // namespace lockstep::base
