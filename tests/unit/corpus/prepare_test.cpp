// Tokenising once: the cache is found again, remade when damaged, the same for any number of threads, and made by one process only.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "corpus/prepare/prepare.h"
#include "support/temporary_folder.h"
#include "unit/corpus/simple_language.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;
using support::SimpleLanguage;

class Prepare : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << bytes;
    return (folder_.path() / name).string();
  }
  config::DataConfig data_of(std::string path) const {
    config::DataConfig data;
    data.path = std::move(path);
    data.cache_dir = (folder_.path() / "cache").string();
    return data;
  }
  Prepared run(const config::DataConfig& data, std::int64_t seq_len = 64, int threads = 2) const {
    return prepare(data, seq_len, std::make_shared<SimpleLanguage>(), {.threads = threads});
  }
  std::string error_of(const config::DataConfig& data, std::int64_t seq_len = 64) const {
    try {
      run(data, seq_len);
      return "no error";
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::data);
      return error.what();
    }
  }
  static std::string pairs(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += fmt::format("{{\"prompt\":\"{}\",\"completion\":\"{}\"}}\n", i, std::string(static_cast<std::size_t>(i % 40), 'x'));
    return lines;
  }
  static std::string text_of(const Cache& cache, std::int64_t sample) {
    std::string text;
    for (std::size_t i = 0; i < cache.tokens(sample).size(); ++i) {
      const auto letter = static_cast<char>(cache.tokens(sample)[i]);
      text += cache.trained(sample, i) ? std::string{'[', letter, ']'} : std::string{letter};
    }
    return text;
  }

  support::TemporaryFolder folder_;
};

TEST_F(Prepare, KeepsTokensMasksAndWhereTheyCameFrom) {
  const auto data = data_of(write("a.jsonl", "{\"prompt\":\"p\",\"completion\":\"c\"}\n\n{\"prompt\":\"q\",\"completion\":\"d\"}\n"));
  const Prepared made = run(data);
  EXPECT_TRUE(made.made);
  ASSERT_EQ(made.cache->samples(), 2);
  EXPECT_EQ(text_of(*made.cache, 0), "<user>p;<assistant>[c][;]");
  EXPECT_EQ(text_of(*made.cache, 1), "<user>q;<assistant>[d][;]");
  EXPECT_EQ(made.cache->entry(1).line, 3u);
  EXPECT_EQ(made.cache->entry(1).record, 1u);
  EXPECT_EQ(made.cache->counts().format, "prompt_completion");
  EXPECT_EQ(made.cache->counts().tokens, 42);
  EXPECT_EQ(made.cache->counts().trained_tokens, 4);
  const Prepared again = run(data);
  EXPECT_FALSE(again.made);
  EXPECT_EQ(text_of(*again.cache, 1), "<user>q;<assistant>[d][;]");
  EXPECT_EQ(again.cache->counts().summary(), made.cache->counts().summary());
  EXPECT_EQ(made.cache->counts().summary(), "2 records, 42 tokens, 10% trained");
}

TEST_F(Prepare, AnyNumberOfThreadsWritesTheSameBytes) {
  auto data = data_of(write("a.jsonl", pairs(5000)));
  std::string first;
  for (const int threads : {1, 2, 7}) {
    data.cache_dir = (folder_.path() / fmt::format("cache{}", threads)).string();
    const std::string bytes = base::read_text(run(data, 64, threads).cache->path());
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << threads;
  }
}

TEST_F(Prepare, EverySettingThatMattersHasACacheOfItsOwn) {
  const auto data = data_of(write("a.jsonl", pairs(50)));
  std::set<std::string> keys = {run(data).cache->key()};
  const auto expect_new = [&](const config::DataConfig& other, std::int64_t seq_len = 64) {
    EXPECT_TRUE(keys.insert(run(other, seq_len).cache->key()).second);
  };
  expect_new(data, 32);
  auto other = data;
  other.train_on = config::TrainOn::all;
  expect_new(other);
  other = data;
  other.max_samples = 7;
  expect_new(other);
  EXPECT_EQ(run(other).cache->counts().records, 7);
  other = data;
  other.system_prompt = "S";
  expect_new(other);
  write("a.jsonl", pairs(50) + "{\"prompt\":\"1\",\"completion\":\"2\"}\n");
  expect_new(data);
  EXPECT_EQ(run(data).cache->samples(), 51);
}

TEST_F(Prepare, ADamagedCacheIsRemade) {
  const auto data = data_of(write("a.jsonl", pairs(300)));
  const fs::path path = run(data).cache->path();
  const std::string good = base::read_text(path);
  std::vector<std::string> damaged = {"",         "x",           good.substr(0, good.size() - 1), good.substr(0, good.size() / 2),
                                      good + "x", good.substr(8)};
  for (std::size_t at = 0; at < good.size(); at += 977) {
    damaged.push_back(good);
    damaged.back()[at] ^= 0x20;
  }
  damaged.push_back(good);
  damaged.back().back() ^= 1;
  for (const std::string& bytes : damaged) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_TRUE(run(data).made);
    EXPECT_EQ(base::read_text(path), good);
  }
  EXPECT_FALSE(run(data).made);
}

TEST_F(Prepare, BadRecordsStopWithTheirLineOrAreCounted) {
  const std::string good = "{\"prompt\":\"p\",\"completion\":\"c\"}\n";
  const struct {
    std::string bytes;
    std::vector<std::string> says;
  } cases[] = {
      {good + good + "{\"prompt\":\"p\",\n" + good, {"a.jsonl:3: the record is broken JSON at column", "data.bad_records=skip"}},
      {good + "{\"prompt\":\"p\"}\n", {"a.jsonl:2: the record has no field 'completion' (it has prompt)"}},
      {good + "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n",
       {"a.jsonl:2: the record has no field 'prompt'", "it looks like messages, but the records are read as prompt_completion"}},
      {good + "{\"prompt\":\"\xff\",\"completion\":\"c\"}\n", {"a.jsonl:2: the record is not UTF-8: byte 0xff at column 12", "iconv"}},
      {good + "7\n", {"a.jsonl:2: the record is a JSON number"}},
  };
  for (const auto& [bytes, says] : cases) {
    auto data = data_of(write("a.jsonl", bytes));
    const std::string error = error_of(data);
    for (const std::string& part : says) EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' in: " << error;
    data.bad_records = config::BadRecord::skip;
    const Counts counts = run(data).cache->counts();
    EXPECT_EQ(counts.bad, 1) << bytes;
    ASSERT_EQ(counts.examples.size(), 1u);
    EXPECT_NE(counts.examples[0].find("a.jsonl:"), std::string::npos);
  }
}

TEST_F(Prepare, TheFirstMistakeInTheFileIsToldHoweverManyThreads) {
  std::string lines = pairs(4000);
  lines += "first mistake\n" + pairs(300) + "second mistake\n";
  for (int round = 0; round < 5; ++round) EXPECT_NE(error_of(data_of(write("a.jsonl", lines))).find("a.jsonl:4001:"), std::string::npos);
}

TEST_F(Prepare, NothingToTrainIsAnError) {
  EXPECT_NE(error_of(data_of(write("empty.jsonl", ""))).find("empty.jsonl has no records: it is empty"), std::string::npos);
  EXPECT_NE(error_of(data_of(write("blank.csv", "prompt,completion\n"))).find("has no records"), std::string::npos);
  EXPECT_NE(
      error_of(data_of(write("user.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n"))).find("none of the 1 records"),
      std::string::npos);
  EXPECT_NE(error_of(data_of(write("other.jsonl", "{\"title\":\"x\"}\n")))
                .find("the first record has the fields title, which are of no known format"),
            std::string::npos);
  EXPECT_NE(error_of(data_of((folder_.path() / "none.jsonl").string())).find("none.jsonl does not exist"), std::string::npos);
}

TEST_F(Prepare, CutSkippedAndUntrainedRecordsAreCounted) {
  auto data = data_of(write("a.jsonl", R"({"prompt":"p","completion":"c"}
{"prompt":"p","completion":"a long answer that does not fit"}
{"prompt":"a long prompt that leaves no room for its answer","completion":"c"}
)"));
  Counts counts = run(data, 24).cache->counts();
  EXPECT_EQ(counts.cut, 1);
  EXPECT_EQ(counts.untrained, 1);
  EXPECT_EQ(counts.samples, 2);
  EXPECT_NE(counts.examples.at(0).find("a.jsonl:3 has nothing to train"), std::string::npos);
  data.too_long = config::TooLong::skip;
  counts = run(data, 24).cache->counts();
  EXPECT_EQ(counts.too_long, 2);
  EXPECT_EQ(counts.samples, 1);
  data.too_long = config::TooLong::error;
  data.bad_records = config::BadRecord::skip;
  EXPECT_NE(error_of(data, 24).find("a.jsonl:2: the record has 51 tokens, more than data.seq_len=24 takes"), std::string::npos)
      << error_of(data, 24);
}

TEST_F(Prepare, TextBecomesOneRowOfTokensWithAnEnd) {
  std::string text;
  for (int line = 0; line < 40000; ++line) text += fmt::format("line {}\n", line);
  auto data = data_of(write("book.txt", text));
  const auto cache = run(data, 64, 3).cache;
  ASSERT_EQ(cache->tokens().size(), text.size() + 1);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), cache->tokens().begin(),
                         [](char letter, std::uint32_t token) { return static_cast<std::uint32_t>(letter) == token; }));
  EXPECT_EQ(cache->tokens().back(), static_cast<std::uint32_t>(SimpleLanguage::stop));
}

TEST_F(Prepare, OneOfManyProcessesDoesTheWork) {
  const auto data = data_of(write("a.jsonl", pairs(20000)));
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const char made = run(data, 64, 1).made ? 'm' : 'f';
      ::_exit(::write(pipe[1], &made, 1) == 1 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  char answers[4] = {};
  ASSERT_EQ(::read(pipe[0], answers, 4), 4);
  EXPECT_EQ(std::count(answers, answers + 4, 'm'), 1);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(Prepare, AKilledPreparerLeavesNothingInTheWay) {
  const auto data = data_of(write("a.jsonl", pairs(20000)));
  const pid_t child = ::fork();
  if (child == 0) {
    prepare(data, 64, std::make_shared<SimpleLanguage>(), {.threads = 1, .on_progress = [](double share) {
                                                             if (share > 0.3)
                                                               ::_exit(9);  // as if killed: the lock is held, the file half written
                                                           }});
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 9);
  const Prepared prepared = run(data);
  EXPECT_TRUE(prepared.made);
  EXPECT_EQ(prepared.cache->samples(), 20000);
}

TEST_F(Prepare, AFolderThatCannotBeWrittenIsNamedWithTheSetting) {
  auto data = data_of(write("a.jsonl", pairs(3)));
  data.cache_dir = write("file", "in the way");
  EXPECT_NE(error_of(data).find("data.cache_dir"), std::string::npos) << error_of(data);
}

}  // namespace
}  // namespace lockstep::corpus
