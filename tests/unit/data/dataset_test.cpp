// Opening data: kinds, splits, fingerprints, and what people are told when a file is not what it should be.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "rank/data/data.h"
#include "text/language.h"
#include "support/temporary_folder.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

template <typename Token>
std::string bytes_of(const std::vector<Token>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)};
}
template <typename Token>
std::vector<Token> counting(std::int64_t count) {
  std::vector<Token> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(i % 100));
  return tokens;
}
std::string write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path.string();
}
std::vector<std::int64_t> sample(const Corpus& corpus, std::int64_t number) {
  const auto length = static_cast<std::size_t>(corpus.length(number));
  std::vector<std::int64_t> tokens(length), targets(length);
  corpus.read(number, tokens, targets);
  EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
  tokens.push_back(targets.back());
  return tokens;
}
config::ModelConfig model_of(std::int64_t vocab_size, std::int64_t seq_len) {
  config::ModelConfig model;
  model.vocab_size = vocab_size;
  model.max_seq_len = seq_len;
  return model;
}
std::string error_of(const config::DataConfig& data, const config::ModelConfig& model) {
  try {
    const Dataset dataset = open_dataset(data, model, 1);
    for (std::int64_t i = 0; i < dataset.training->samples(); ++i) sample(*dataset.training, i);
    return "no error";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::data);
    return error.what();
  }
}
config::DataConfig data_of(std::string path) {
  config::DataConfig data;
  data.path = std::move(path);
  data.validation_fraction = 0;
  return data;
}

TEST(Dataset, WindowsDoNotOverlapExceptForTheTargetThatStartsTheNext) {
  const support::TemporaryFolder folder;
  auto data = data_of(write(folder.path() / "tokens.bin", bytes_of(counting<std::uint32_t>(14))));
  const Dataset dataset = open_dataset(data, model_of(100, 4), 1);
  ASSERT_EQ(dataset.training->samples(), 3);
  EXPECT_EQ(sample(*dataset.training, 0), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(sample(*dataset.training, 2), (std::vector<std::int64_t>{8, 9, 10, 11, 12}));
  EXPECT_EQ(dataset.validation, nullptr);
  data.seq_len = 13;
  EXPECT_EQ(open_dataset(data, model_of(100, 4), 1).training->samples(), 1);
}

TEST(Dataset, KindFollowsFromThePath) {
  const support::TemporaryFolder folder;
  const std::string bin = write(folder.path() / "a.bin", bytes_of(counting<std::uint32_t>(50)));
  const std::string upper = write(folder.path() / "a.BIN", bytes_of(counting<std::uint32_t>(50)));
  const std::string text = write(folder.path() / "a.txt", "Hello, wide world.");
  const std::string bare = write(folder.path() / "README", "Hello, wide world.");
  const struct {
    std::string path;
    config::DataKind kind;
    std::int64_t first;
    std::int64_t vocabulary;
  } cases[] = {
      {bin, config::DataKind::automatic, 0, 2000},   {upper, config::DataKind::automatic, 0, 2000},
      {text, config::DataKind::automatic, 'H', 256}, {bare, config::DataKind::automatic, 'H', 256},
      {bin, config::DataKind::bin, 0, 2000},         {"", config::DataKind::automatic, 256, -1},
      {bin, config::DataKind::stories, 256, -1},
  };
  for (const auto& [path, kind, first, vocabulary] : cases) {
    auto data = data_of(path);
    data.kind = kind;
    data.stories = 20;
    const Dataset dataset = open_dataset(data, model_of(2000, 4), 1);
    EXPECT_EQ(sample(*dataset.training, 0)[0], first) << path;
    EXPECT_TRUE(vocabulary < 0 || dataset.language->size() == vocabulary) << path;
  }
}

TEST(Dataset, TokensOfSixteenBits) {
  const support::TemporaryFolder folder;
  auto data = data_of(write(folder.path() / "tokens.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 65535, 4, 5})));
  data.token_type = config::TokenType::u16;
  EXPECT_EQ(sample(*open_dataset(data, model_of(65536, 4), 1).training, 0), (std::vector<std::int64_t>{1, 2, 65535, 4, 5}));
}

TEST(Dataset, RandomTokensAreEvenAndKeyed) {
  auto data = data_of("");
  data.kind = config::DataKind::random;
  data.random_tokens = 100001;
  const auto one = open_dataset(data, model_of(50, 100), 1).training;
  ASSERT_EQ(one->samples(), 1000);
  std::vector<int> counts(50);
  for (std::int64_t i = 0; i < one->samples(); ++i) {
    const auto tokens = sample(*one, i);
    for (std::size_t t = 0; t < 100; ++t) ++counts.at(static_cast<std::size_t>(tokens[t]));
    EXPECT_TRUE(i == 0 || tokens[0] == sample(*one, i - 1).back());
  }
  for (const int count : counts) EXPECT_NEAR(count, 2000, 5 * std::sqrt(2000.0));
  EXPECT_EQ(sample(*open_dataset(data, model_of(50, 100), 1).training, 5), sample(*one, 5));
  EXPECT_NE(sample(*open_dataset(data, model_of(50, 100), 2).training, 5), sample(*one, 5));
}

TEST(Dataset, TheLastSamplesAreForValidation) {
  const support::TemporaryFolder folder;
  const std::string path = write(folder.path() / "tokens.bin", bytes_of(counting<std::uint32_t>(81)));  // 20 samples of 4
  const struct {
    double fraction;
    std::int64_t training, validation;
  } cases[] = {{0, 20, 0}, {0.05, 19, 1}, {0.5, 10, 10}, {0.01, 20, 0}, {0.999, 1, 19}};
  for (const auto& [fraction, training, validation] : cases) {
    auto data = data_of(path);
    data.validation_fraction = fraction;
    const Dataset dataset = open_dataset(data, model_of(100, 4), 1);
    EXPECT_EQ(dataset.training->samples(), training);
    EXPECT_EQ(dataset.validation ? dataset.validation->samples() : 0, validation);
    EXPECT_TRUE(validation == 0 || sample(*dataset.validation, 0)[0] == training * 4);
  }
  auto data = data_of(path);
  data.validation_fraction = 0.5;
  data.validation_path = write(folder.path() / "other.bin", bytes_of(std::vector<std::uint32_t>{9, 8, 7, 6, 5, 4, 3, 2, 1}));
  const Dataset dataset = open_dataset(data, model_of(100, 4), 1);
  EXPECT_EQ(dataset.training->samples(), 20);
  ASSERT_EQ(dataset.validation->samples(), 2);
  EXPECT_EQ(sample(*dataset.validation, 1), (std::vector<std::int64_t>{5, 4, 3, 2, 1}));
}

TEST(Dataset, FingerprintsTellDataApart) {
  const support::TemporaryFolder folder;
  const auto print = [&](const std::string& bytes, std::int64_t seq_len, double fraction) {
    auto data = data_of(write(folder.path() / "tokens.bin", bytes));
    data.validation_fraction = fraction;
    return open_dataset(data, model_of(100, seq_len), 1).training->fingerprint();
  };
  const std::string content = bytes_of(counting<std::uint32_t>(1000));
  std::string changed = content;
  changed[2000] ^= 1;
  const std::string original = print(content, 4, 0);
  EXPECT_EQ(print(content, 4, 0), original);
  EXPECT_NE(print(changed, 4, 0), original);
  EXPECT_NE(print(content.substr(0, 3996), 4, 0), original);
  EXPECT_NE(print(content, 8, 0), original);
  EXPECT_NE(print(content, 4, 0.5), original);

  auto stories = data_of("");
  stories.stories = 10;
  const auto of_seed = [&](std::int64_t seed) { return open_dataset(stories, model_of(1024, 4), seed).training->fingerprint(); };
  EXPECT_EQ(of_seed(1), of_seed(1));
  EXPECT_NE(of_seed(1), of_seed(2));
}

TEST(Dataset, ErrorsNameTheFileAndTheFix) {
  const support::TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& bytes) { return write(folder.path() / name, bytes); };
  // Larger than what is scanned when the file is opened, so that the broken token in its middle is found while reading.
  auto large = counting<std::uint32_t>(4'000'000);
  large[2'000'000] = 777;
  auto last = counting<std::uint32_t>(4'000'000);
  last.back() = 778;
  const struct {
    config::DataConfig data;
    std::vector<std::string> says;
  } cases[] = {
      {data_of((folder.path() / "none.bin").string()), {"none.bin does not exist", "--data"}},
      {data_of(folder.path().string()), {"need a tokenizer", "--model"}},
      {data_of(file("cut.bin", std::string(4003, '\0'))), {"cut.bin has 4003 bytes", "no multiple of 4", "data.token_type"}},
      {data_of(file("empty.bin", "")), {"empty.bin has 0 tokens", "data.seq_len=4", "make 5"}},
      {data_of(file("short.bin", bytes_of(counting<std::uint32_t>(4)))), {"short.bin has 4 tokens", "smaller data.seq_len"}},
      {data_of(file("empty.txt", "")), {"empty.txt has 0 tokens"}},
      {data_of(file("first.bin", bytes_of(std::vector<std::uint32_t>{1, 2, 500, 3, 4}))),
       {"token 500 at position 2", "model.vocab_size=100"}},
      {data_of(file("large.bin", bytes_of(large))), {"token 777 at position 2000000", "above 777"}},
      {data_of(file("last.bin", bytes_of(last))), {"token 778 at position 3999999"}},
      {data_of(file("letters.txt", "a~b~c~d~")), {"byte 126 at position 1", "256 or more"}},
      {data_of(file("image.png", std::string("\x89PNG\0\0", 6))), {"image.png is not text", "data.kind=bin"}},
      {data_of(""), {"built-in stories have", "model.vocab_size=100", "model.vocab_size=1024"}},
  };
  for (const auto& [data, says] : cases) {
    const std::string error = error_of(data, model_of(100, 4));
    for (const std::string& part : says) EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' in: " << error;
  }
  auto bin = data_of("");
  bin.kind = config::DataKind::bin;
  EXPECT_NE(error_of(bin, model_of(100, 4)).find("data.kind=bin needs a file"), std::string::npos);
  bin.packing = true;
  EXPECT_NE(error_of(bin, model_of(100, 4)).find("data of kind bin has none: its samples are full already"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::data
