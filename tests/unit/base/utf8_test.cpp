// Which bytes are UTF-8, and what becomes of those that are not.
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/file/safetensors.h"

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

TEST(Utf8, WhatIsQuotedSteersNoTerminal) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain, \xC3\xA9", "plain, \xC3\xA9"},
      {"\x1b[2J", "\\x1b[2J"},
      {"a\nb\x7f", "a\\x0ab\\x7f"},
      {"\xc2\x9b"
       "2J",
       "\\xc2\\x9b2J"},
      {"\xff{\xe2\x82", "\\xff{\\xe2\\x82"},
      {std::string("\0", 1), "\\x00"},
      {std::string(400, 'x'), std::string(300, 'x') + "..."},
  };
  for (const auto& [text, safe] : cases) EXPECT_EQ(quotable(text), safe);
}

TEST(Utf8, ADamagedSafetensorsHeaderIsQuotedAsText) {
  for (const std::string& header :
       {std::string("{\"\x1b]0;title\x07\xff\xfe"), std::string("{\"\x9b\x9b\x9b\x9b\":1}"), std::string("{\"a\\u001b[2J\":1}")}) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes += header;
    std::string said;
    try {
      read_safetensors_header(std::as_bytes(std::span(bytes)), "x.safetensors");
    } catch (const UserError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("x.safetensors is damaged"), std::string::npos) << said;
    EXPECT_TRUE(std::all_of(said.begin(), said.end(), [](char c) { return c >= ' ' && c < 0x7f; })) << said;
  }
}

}  // namespace
}  // namespace lockstep::base
