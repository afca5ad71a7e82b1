// A 128-bit hash of content, for names of cached things: fast, and far from any accidental collision. Not for secrets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::base {

class ContentHash {
 public:
  ContentHash& add(std::string_view bytes);  // pieces count as pieces: "ab", "c" differs from "a", "bc"
  ContentHash& add(std::int64_t number);
  std::string hex() const;  // 32 letters
  std::uint64_t half() const { return one_ ^ two_; }

 private:
  std::uint64_t one_ = 0x243f6a8885a308d3ull, two_ = 0x13198a2e03707344ull;  // digits of pi
};

}  // namespace lockstep::base
