// A tokenizer's contract, and what it says of files that cannot be used.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "support/temporary_folder.h"
#include "text/tokenizer.h"
#include "text/train.h"

namespace lockstep::text {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

// Learned from a few lines, so that tests need no file.
std::string small_tokenizer() {
  bool given = false;
  return train_bpe({.vocab_size = 280, .special = {"<|end|>", "<|pad|>"}}, [&]() -> std::optional<std::string_view> {
    if (std::exchange(given, true)) return std::nullopt;
    return "the cat and the dog and the cat and the end";
  });
}

class TokenizerTest : public testing::Test {
 protected:
  void SetUp() override { write(folder_.path() / "tokenizer.json", small_tokenizer()); }
  std::string refused(const fs::path& path) {
    try {
      const auto tokenizer = Tokenizer::open(path);
      read_tokenizer_files(path, *tokenizer);
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::data);
      return error.what();
    }
    return "nothing was refused";
  }
  support::TemporaryFolder folder_;
};

TEST_F(TokenizerTest, GoesThereAndBack) {
  const auto tokenizer = Tokenizer::open(folder_.path());
  for (const std::string text : {"the cat", "", "\xF0\x9F\x91\x8D bytes \xC3\xA9\n", "<|end|>the"}) {
    const auto tokens = tokenizer->encode(text, SpecialTokens::leave_out);
    EXPECT_EQ(tokenizer->decode(tokens, false), text);
    const Encoded with_spans = tokenizer->encode_with_spans(text, SpecialTokens::leave_out);
    EXPECT_EQ(with_spans.tokens, tokens);
    ASSERT_EQ(with_spans.spans.size(), tokens.size());
    for (const TokenSpan span : with_spans.spans) EXPECT_TRUE(span.begin <= span.end && span.end <= text.size());
  }
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<|end|>the", SpecialTokens::leave_out), true), "the");
}

TEST_F(TokenizerTest, KnowsItsTokens) {
  const auto tokenizer = Tokenizer::open(folder_.path() / "tokenizer.json");
  EXPECT_GT(tokenizer->size(), 258);  // 256 bytes, two special tokens, and the few pairs that so little text has
  EXPECT_NE(tokenizer->token(static_cast<std::int32_t>(tokenizer->size()) - 1), "");
  EXPECT_EQ(tokenizer->token(static_cast<std::int32_t>(tokenizer->size())), "");
  EXPECT_EQ(tokenizer->find("<|pad|>"), 1);
  EXPECT_EQ(tokenizer->find("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->token(0), "<|end|>");
  EXPECT_EQ(tokenizer->token(-1), "");
  EXPECT_EQ(tokenizer->token(100000), "");
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_FALSE(tokenizer->is_special(5));
  ASSERT_EQ(tokenizer->added_tokens().size(), 2u);
}

TEST_F(TokenizerTest, ServesThreads) {
  const auto tokenizer = Tokenizer::open(folder_.path());
  const auto expected = tokenizer->encode("the cat and the dog", SpecialTokens::add);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) EXPECT_EQ(tokenizer->encode("the cat and the dog", SpecialTokens::add), expected);
    });
  }
}

TEST_F(TokenizerTest, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = Tokenizer::open(folder_.path());
  EXPECT_THROW(tokenizer->encode("a\xFFz", SpecialTokens::leave_out), base::UserError);
}

TEST_F(TokenizerTest, SaysWhatIsWrongWithFiles) {
  const auto missing = folder_.path() / "none";
  fs::create_directory(missing);
  EXPECT_NE(refused(missing).find("none/tokenizer.json does not exist"), std::string::npos) << refused(missing);
  write(missing / "tokenizer.model", "");
  EXPECT_NE(refused(missing).find("save it once with transformers"), std::string::npos);
  for (const char* broken : {"", "{", "[1, 2]", "{\"model\": {\"type\": \"Nonsense\"}}"}) {
    write(missing / "tokenizer.json", broken);
    EXPECT_NE(refused(missing).find("none/tokenizer.json: this is no tokenizer"), std::string::npos) << broken;
  }
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
    write(folder_.path() / name, "{\"eos_token\": ");
    EXPECT_NE(refused(folder_.path()).find(std::string(name) + " is not JSON"), std::string::npos) << name;
    write(folder_.path() / name, "[]");
    EXPECT_NE(refused(folder_.path()).find(std::string(name) + " holds no JSON object"), std::string::npos) << name;
    fs::remove(folder_.path() / name);
  }
  write(folder_.path() / "generation_config.json", "{\"eos_token_id\": [1, \"two\"]}");
  EXPECT_NE(refused(folder_.path()).find("eos_token_id \"two\" is no token number"), std::string::npos);
  fs::remove(folder_.path() / "generation_config.json");
  write(folder_.path() / "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}");
  EXPECT_NE(refused(folder_.path()).find("named \"default\""), std::string::npos);
}

TEST_F(TokenizerTest, TrainingThrowsWhatItsTextsThrow) {
  EXPECT_THROW(
      train_bpe({.vocab_size = 300, .special = {}}, []() -> std::optional<std::string_view> { throw base::data_error("data", "no"); }),
      base::UserError);
}

}  // namespace
}  // namespace lockstep::text
