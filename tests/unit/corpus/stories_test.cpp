// The built-in stories: readable, deterministic, within their vocabulary; text comes back as it was.
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <set>

#include "base/utf8.h"
#include "corpus/stories/stories.h"

namespace lockstep::corpus {
namespace {

std::string story(const StoryMaker& maker, std::int64_t seed, std::int64_t number) {
  std::vector<std::uint16_t> tokens;
  maker.make(seed, number, tokens);
  return maker.vocabulary()->decode(std::vector<std::int32_t>(tokens.begin(), tokens.end()));
}

TEST(Stories, VocabularyFitsIntoASmallModel) {
  const StoryMaker maker;
  EXPECT_LT(maker.vocabulary()->size(), 1024);
  EXPECT_GT(maker.vocabulary()->size(), 700);
}

TEST(Stories, DependOnSeedAndNumberAlone) {
  const StoryMaker one, two;
  EXPECT_EQ(story(one, 7, 3), story(two, 7, 3));
  EXPECT_NE(story(one, 7, 3), story(one, 8, 3));
  std::set<std::string> different;
  for (int number = 0; number < 2000; ++number) different.insert(story(one, 1, number));
  EXPECT_GT(different.size(), 1990u);
}

// What a careful reader would stumble over: doubled spaces, missing capitals, wrong articles, unbalanced quotes, leftover notation.
TEST(Stories, ReadWell) {
  const StoryMaker maker;
  const std::regex stumble(R"(  | [.,!?]|[.!?] [a-z]|\ba [aeiouAEIOU]|\ban [^aeiouAEIOU]|[\[\]{}|]|\b(\w+) \1\b(?! and|[.,]))");
  for (int number = 0; number < 3000; ++number) {
    const std::string text = story(maker, 5, number);
    EXPECT_TRUE(std::isupper(static_cast<unsigned char>(text[0]))) << text;
    EXPECT_TRUE(text.ends_with('.') || text.ends_with('"') || text.ends_with('!')) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '"') % 2, 0) << text;
    std::smatch found;
    EXPECT_FALSE(std::regex_search(text, found, stumble)) << "'" << found.str() << "' in: " << text;
  }
}

TEST(Stories, TextComesBackAsItWas) {
  const StoryMaker maker;
  const auto& vocabulary = *maker.vocabulary();
  const char* cases[] = {
      "",
      " ",
      "Once upon a time",
      "once upon a time",
      "The cat.",
      "the the The",
      "\"Help!\" cried Lily. \"I am lost!\" She ran.",
      "\"Help!\" Cried Lily.",
      "Lily's ball\nTom's hat",
      "don't let's can't",
      "two  spaces",
      " leading",
      "trailing ",
      "\n\n\nlines\n",
      "\n\nempty first",
      "end of it.\n\nOnce upon",
      "Zxqv was here",
      "xthe thex",
      "a\tb",
      "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82",
      "((\"quoted\"))",
      "'s 's",
      "I'm I",
      "said, \"\"",
      "!?.,",
  };
  for (const std::string text : cases) EXPECT_EQ(vocabulary.decode(vocabulary.encode(text).tokens), text);

  std::mt19937 random(3);
  const std::string_view alphabet = "the Tom's \"I.\n,!? cried Lily saidé";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += alphabet[random() % alphabet.size()];
    text = base::valid_utf8(text);
    EXPECT_EQ(vocabulary.decode(vocabulary.encode(text).tokens), text);
  }
}

TEST(Stories, AreEncodedToTheTokensTheyWereMadeOf) {
  const StoryMaker maker;
  for (int number = 0; number < 300; ++number) {
    std::vector<std::uint16_t> made;
    maker.make(11, number, made);
    const std::vector<std::int32_t> tokens(made.begin(), made.end());
    EXPECT_EQ(maker.vocabulary()->encode(maker.vocabulary()->decode(tokens)).tokens, tokens);
  }
}

TEST(Stories, UntrainedTokensAndBrokenBytesGiveValidText) {
  const StoryMaker maker;
  const std::vector<std::int32_t> tokens = {0xff, 0xc3, maker.vocabulary()->word("the"), 5000, -1, 0xe2, 0x82};
  EXPECT_EQ(maker.vocabulary()->decode(tokens), "\xef\xbf\xbd\xef\xbf\xbd the??\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace lockstep::corpus
