// Which bytes are UTF-8, and what becomes of those that are not.
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

TEST(Utf8, TheFirstByteThatIsNoneIsFound) {
  const std::vector<std::pair<std::string, std::optional<std::size_t>>> cases = {
      {"", {}},
      {"plain", {}},
      {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x91\x8D", {}},
      {"\xF4\x8F\xBF\xBF", {}},
      {"a\xFF", 1},
      {"a\xC3", 1},
      {"ab\xE2\x82", 2},
      {"\xC0\xAF", 0},          // longer than needed
      {"\xED\xA0\x80", 0},      // half of a pair
      {"\xF4\x90\x80\x80", 0},  // beyond Unicode
      {"x\x80", 1},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(first_invalid_utf8(text), expected) << text;
}

TEST(Utf8, EveryByteThatIsNoneBecomesAMark) {
  const std::string mark = "\xef\xbf\xbd";
  const std::pair<std::string, std::string> cases[] = {
      {"ok", "ok"},
      {"\x80", mark},
      {"\xc0\xaf", mark + mark},
      {"\xed\xa0\x80", mark + mark + mark},
      {"\xf5", mark},
      {"\xe2\x82", mark + mark},
      {"\xe2\x82\xac", "\xe2\x82\xac"},
      {"\xf4\x90\x80\x80", mark + mark + mark + mark},
  };
  for (const auto& [text, valid] : cases) EXPECT_EQ(valid_utf8(text), valid);
}

}  // namespace
}  // namespace lockstep::base
