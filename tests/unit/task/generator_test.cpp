// Texts that come piece by piece, and the loop that writes them.
#include <gtest/gtest.h>

#include "rank/task/language/generator.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::task {
namespace {

std::shared_ptr<const text::Language> bytes() { return text::byte_language(); }

// The pieces that come out for each byte that goes in; the last is what finish() gives.
std::vector<std::string> pieces(const std::string& text, const std::vector<std::string>& stops, bool* stopped = nullptr) {
  const auto language = bytes();
  text::TextStream stream(*language, language->encode_prompt("prompt "), stops);
  std::vector<std::string> out;
  for (const char c : text) {
    out.push_back(stream.push(std::int32_t(static_cast<unsigned char>(c))));
    if (stream.stopped()) break;
  }
  out.push_back(stream.finish());
  if (stopped) *stopped = stream.stopped();
  std::string whole;
  for (const auto& piece : out) whole += piece;
  EXPECT_EQ(whole, stream.text());
  return out;
}

TEST(TextStream, HoldsBackHalfCharacters) {
  EXPECT_EQ(pieces("aé", {}), (std::vector<std::string>{"a", "", "é", ""}));
  EXPECT_EQ(pieces("😀!", {}), (std::vector<std::string>{"", "", "", "😀", "!", ""}));
  EXPECT_EQ(pieces("a\xc3", {}), (std::vector<std::string>{"a", "", "\xef\xbf\xbd"}))
      << "what never becomes a character is said to be none";
}

TEST(TextStream, EndsBeforeAStopStringThatSpansTokens) {
  bool stopped = false;
  EXPECT_EQ(pieces("ab END cd", {"END"}, &stopped), (std::vector<std::string>{"a", "b", " ", "", "", "", ""}));
  EXPECT_TRUE(stopped);
}

TEST(TextStream, GivesOutWhatOnlyLookedLikeAStopString) {
  bool stopped = true;
  EXPECT_EQ(pieces("aENDLE", {"ENDED", "NDX"}, &stopped), (std::vector<std::string>{"a", "", "", "", "ENDL", "", "E"}));
  EXPECT_FALSE(stopped);
  const auto held = pieces("xEN", {"END"}, &stopped);
  EXPECT_FALSE(stopped);
  EXPECT_EQ(held, (std::vector<std::string>{"x", "", "", "EN"}));
}

TEST(TextStream, TheEarliestOfSeveralStopsCounts) {
  bool stopped = false;
  const auto out = pieces("one two three", {"three", "two"}, &stopped);
  std::string whole;
  for (const auto& piece : out) whole += piece;
  EXPECT_EQ(whole, "one ");
  EXPECT_TRUE(stopped);
}

config::ModelConfig tiny() {
  config::ModelConfig c;
  c.hidden_size = 32;
  c.num_layers = 2;
  c.num_heads = 4;
  c.kv_heads = 2;
  c.vocab_size = 256;
  c.max_seq_len = 64;
  c.initializer_range = 0.3;
  return c;
}

class Writing : public testing::Test {
 protected:
  Writing() : units_(test::make_units(tiny(), {.device = test::device(), .trainable = false})), decoder_(tiny(), test::pointers(units_)) {}

  Generator generator(GenerateOptions options) {
    options.context = tiny().max_seq_len;
    return Generator(decoder_, *language_, test::device(), options);
  }
  std::vector<Prompt> prompts(const std::vector<std::string>& texts) const {
    std::vector<Prompt> out;
    for (const auto& text : texts) out.push_back({language_->encode_prompt(text), out.size()});
    return out;
  }

  std::shared_ptr<const text::Language> language_ = bytes();
  std::vector<std::unique_ptr<model::Unit>> units_;
  model::Decoder decoder_;
};

TEST_F(Writing, ATextDoesNotDependOnItsBatch) {
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 1, .top_k = 20, .seed = 4},
                                   Sampling{.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.3}}) {
    auto all = prompts({"a longer beginning", "b", "so it goes", "x y"});
    const auto together = generator({.sampling = sampling, .max_tokens = 30}).run(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto alone = generator({.sampling = sampling, .max_tokens = 30}).run({&all[i], 1});
      EXPECT_EQ(alone[0].tokens, together[i].tokens) << "prompt " << i;
      EXPECT_EQ(alone[0].text, together[i].text);
    }
  }
}

TEST_F(Writing, EndsAtTheContextAndAtTheLimit) {
  const auto prompt = prompts({std::string(50, 'a')});
  auto done = generator({.sampling = {.temperature = 0}, .max_tokens = 100}).run(prompt);
  EXPECT_EQ(done[0].tokens.size(), 14u);
  EXPECT_EQ(done[0].finish, Finish::context);
  done = generator({.sampling = {.temperature = 0}, .max_tokens = 5}).run(prompt);
  EXPECT_EQ(done[0].tokens.size(), 5u);
  EXPECT_EQ(done[0].finish, Finish::length);
  EXPECT_THROW(generator({}).run(prompts({std::string(64, 'a')})), std::exception);
}

TEST_F(Writing, AStopStringEndsOneTextAndLeavesTheOthers) {
  const auto all = prompts({"once", "twice", "thrice"});
  const GenerateOptions options{.sampling = {.temperature = 0}, .max_tokens = 30};
  const auto whole = generator(options).run(all);
  GenerateOptions stopping = options;
  stopping.stops = {whole[1].text.substr(whole[1].text.size() / 2, 6)};
  const auto cut = generator(stopping).run(all);
  EXPECT_EQ(cut[1].finish, Finish::stop);
  EXPECT_EQ(cut[1].text, whole[1].text.substr(0, whole[1].text.find(stopping.stops[0])));
  for (const std::size_t i : {0, 2})
    if (whole[i].text.find(stopping.stops[0]) == std::string::npos) {
      EXPECT_EQ(cut[i].text, whole[i].text);
    }
}

TEST_F(Writing, GoingOnRemembersWhatWasSeen) {
  const GenerateOptions options{.sampling = {.temperature = 0}, .max_tokens = 8};
  auto talk = generator(options);
  std::vector<std::int32_t> tokens = language_->encode_prompt("first turn");
  for (int turn = 0; turn < 3; ++turn) {
    const Prompt prompt{tokens};
    const auto remembered = talk.go_on(prompt);
    const auto fresh = generator(options).run({&prompt, 1});
    EXPECT_EQ(remembered.tokens, fresh[0].tokens) << "turn " << turn;
    if (turn > 0) {
      EXPECT_GE(remembered.reused, 17) << "turn " << turn;
    }
    tokens.insert(tokens.end(), remembered.tokens.begin(), remembered.tokens.end());
    for (const auto token : language_->encode_prompt(" more")) tokens.push_back(token);
  }
  tokens[3] = 'X';  // another conversation
  const Prompt other{tokens};
  const auto anew = talk.go_on(other);
  EXPECT_EQ(anew.reused, 3);
  EXPECT_EQ(anew.tokens, generator(options).run({&other, 1})[0].tokens);
}

TEST_F(Writing, AListenerCanEndIt) {
  int heard = 0;
  const auto done =
      generator({.sampling = {.temperature = 0}, .max_tokens = 30}).run(prompts({"hello"}), [&](std::size_t, const std::string&) {
        return ++heard < 3;
      });
  EXPECT_EQ(done[0].finish, Finish::interrupted);
  EXPECT_EQ(heard, 3);
}

}  // namespace
}  // namespace lockstep::task
