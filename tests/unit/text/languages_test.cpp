// Languages that need no file.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/language.h"

namespace lockstep::text {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(Languages, NumbersAndBytes) {
  const auto numbers = number_language(300);
  EXPECT_EQ(numbers->encode_prompt("17 4 299"), (Tokens{17, 4, 299}));
  EXPECT_EQ(numbers->encode_prompt("17 300"), (Tokens{'1', '7', ' ', '3', '0', '0'}));
  EXPECT_EQ(numbers->decode(Tokens{17, 4}), "17 4");
  EXPECT_EQ(number_language(100)->encode_prompt("az"), (Tokens{97}));
  EXPECT_EQ(number_language(5)->encode_prompt("az"), (Tokens{0}));
  const auto bytes = byte_language();
  EXPECT_EQ(bytes->decode(bytes->encode_prompt("caf\xc3\xa9")), "caf\xc3\xa9");
  EXPECT_EQ(bytes->decode(Tokens{'a', 400, 0xff}), "a?\xef\xbf\xbd");
}

TEST(Languages, SpansAreWhereTokensStand) {
  for (const auto& [language, text] : {std::pair(number_language(300), "17 4 299"), std::pair(byte_language(), "to")}) {
    const Encoded encoded = language->encode(text, SpecialTokens::leave_out);
    ASSERT_EQ(encoded.spans.size(), encoded.tokens.size());
    for (std::size_t i = 0; i < encoded.tokens.size(); ++i) {
      const auto [begin, end] = encoded.spans[i];
      EXPECT_EQ(std::string(text).substr(begin, end - begin), language->spell(encoded.tokens[i]));
    }
  }
}

TEST(Languages, APromptIsNeverEmptyAndAConversationIsItsLastMessage) {
  for (const auto& language : {number_language(300), byte_language()}) {
    EXPECT_EQ(language->encode_prompt(""), (Tokens{'\n'}));
    EXPECT_FALSE(language->has_template());
    EXPECT_TRUE(language->end_tokens().empty());
    EXPECT_EQ(language->encode_chat({{{"role", "user"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}}), (Tokens{'b'}));
  }
}

}  // namespace
}  // namespace lockstep::text
