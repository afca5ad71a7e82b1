// Files of records: layouts, line numbers, and what people are told of files that are broken.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "corpus/files/files.h"
#include "support/temporary_folder.h"

namespace lockstep::corpus {
namespace {

std::string write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path.string();
}

// "line:record" of each record, or "line!what is wrong with it".
std::vector<std::string> read_all(const std::string& path, bool as_text = false) {
  const Files files(path, as_text);
  Scanner scanner(files);
  std::vector<std::string> all;
  while (const auto record = scanner.next()) {
    try {
      all.push_back(fmt::format("{}:{}", record->line, files.parse(*record).dump()));
    } catch (const Unreadable& problem) {
      all.push_back(fmt::format("{}!{}", record->line + problem.lines_below(), problem.what()));
    }
  }
  return all;
}

using Lines = std::vector<std::string>;

TEST(RecordFiles, LayoutsGiveRecordsWithTheirLines) {
  const support::TemporaryFolder folder;
  const struct {
    const char* name;
    std::string bytes;
    Lines records;
  } cases[] = {
      {"a.jsonl", "{\"a\":1}\n\n{\"a\":2}\r\n  \n{\"a\":3}", {"1:{\"a\":1}", "3:{\"a\":2}", "5:{\"a\":3}"}},
      {"mark.jsonl", "\xef\xbb\xbf{\"a\":1}\n", {"1:{\"a\":1}"}},
      {"empty.jsonl", "", {}},
      {"blank.jsonl", "\n \n\n", {}},
      {"turns.jsonl", "{\"turns\":[{\"a\":1},{\"a\":2}]}\n", {"1:{\"turns\":[{\"a\":1},{\"a\":2}]}"}},
      {"pair.jsonl", "{\"chosen\":[1],\"rejected\":[2]}", {"1:{\"chosen\":[1],\"rejected\":[2]}"}},
      {"list.jsonl", "[{\"a\":1},\n{\"a\":2}]", {"1:{\"a\":1}", "2:{\"a\":2}"}},
      {"list.json", "[\n  {\"a\": \"x]},\\\"{\"},\n\n  {\"a\":\n2}\n]\n", {"2:{\"a\":\"x]},\\\"{\"}", "4:{\"a\":2}"}},
      {"none.json", "[]", {}},
      {"within.json", "{\"version\": \"1\", \"rows\": [{\"a\": [1]}, {\"a\": [2]}], \"n\": {}}", {"1:{\"a\":[1]}", "1:{\"a\":[2]}"}},
      {"lines.json", "{\"a\":1}\n{\"a\":2}\n", {"1:{\"a\":1}", "2:{\"a\":2}"}},
      {"one.json", "{\n\"messages\": [1],\n\"tools\": []\n}\n", {"1:{\"messages\":[1],\"tools\":[]}"}},
      {"a.csv",
       "q,a\n1,2\n\"x,\"\"y\"\"\nz\",5\" pipe\n\n3,\n",
       {"2:{\"q\":\"1\",\"a\":\"2\"}", "3:{\"q\":\"x,\\\"y\\\"\\nz\",\"a\":\"5\\\" pipe\"}", "6:{\"q\":\"3\",\"a\":\"\"}"}},
      {"a.tsv", "q\ta\r\n1,5\t2\r\n", {"2:{\"q\":\"1,5\",\"a\":\"2\"}"}},
      {"a.txt", "one\n\ntwo\n", {"1:{\"text\":\"one\"}", "3:{\"text\":\"two\"}"}},
  };
  for (const auto& [name, bytes, records] : cases) EXPECT_EQ(read_all(write(folder.path() / name, bytes)), records) << name;
}

TEST(RecordFiles, ABadRecordSaysWhereAndWhatAndTheNextOneIsRead) {
  const support::TemporaryFolder folder;
  const struct {
    const char* name;
    std::string bytes;
    std::size_t which;
    const char* says;
  } cases[] = {
      {"a.jsonl", "{\"a\":1}\n{\"a\":oops}\n{\"a\":3}\n", 1, "2!is broken JSON at column 6"},
      {"b.jsonl", "{\"a\":1}\n{\"a\":\n{\"a\":3}\n", 1, "2!is broken JSON"},
      {"c.jsonl", "{\"a\":1}\n[1,2]\n{\"a\":3}\n", 1, "2!is a JSON array"},
      {"d.jsonl", "{\"a\":1}\n{\"a\":\"caf\xe9\"}\n{\"a\":3}\n", 1, "2!is not UTF-8: byte 0xe9 at column 10"},
      {"e.jsonl", "{\"a\":1}\n{\"a\":\"\\ud800\"}\n{\"a\":3}\n", 1, "2!is broken JSON"},
      {"f.json", "[{\"a\":1},\n{\"a\":\n 1,}, {\"a\":3}]", 1, "3!is broken JSON at column 4"},
      {"g.csv", "q,a\n1,2\n1,2,3\n3,4\n", 1, "3!has 3 fields, the header names 2 (q, a)"},
  };
  for (const auto& [name, bytes, which, says] : cases) {
    const Lines all = read_all(write(folder.path() / name, bytes));
    ASSERT_EQ(all.size(), 3u) << name;
    EXPECT_TRUE(all[which].starts_with(says)) << all[which];
    EXPECT_EQ(all[2].find('!'), std::string::npos) << all[2];
  }
}

TEST(RecordFiles, ABrokenStructureIsAnErrorWithItsLine) {
  const support::TemporaryFolder folder;
  const struct {
    const char* name;
    std::string bytes;
    const char* says;
  } cases[] = {
      {"a.json", "[{\"a\":1},\n{\"a\":2}\n", "a.json:3: expected , or ]"},
      {"b.json", "[{\"a\":1},\n{\"a\":2\n", "b.json:2: the record that starts here is never closed"},
      {"c.json", "[{\"a\":1}\n{\"a\":2}]", "c.json:2: expected , or ]"},
      {"d.json", "[{\"a\":1}]\n]", "d.json:2: there is more after the ]"},
      {"e.json", "[{\"a\":1},,]", "e.json:1: expected a record, found ','"},
      {"f.json", "{\"a\":[1],\"b\":[2]}", "f.json: the object holds 2 lists (a, b, ...)"},
      {"g.csv", "q,a\n1,2\n\"3,4\n", "g.csv:3: a quote that opens in this row is never closed"},
      {"h.csv", "q,,a\n1,2,3\n", "h.csv:1: column 2 of the header is empty"},
      {"i.csv", "q,q\n1,2\n", "i.csv:1: column 2 of the header is 'q' a second time"},
      {"j.parquet", "PAR1", "j.parquet cannot be read as Parquet: it does not start as a Parquet file does"},
      {"k.parquet", "PAR1 and then nothing", "k.parquet cannot be read as Parquet: it does not end as a Parquet file does: it is cut off"},
  };
  for (const auto& [name, bytes, says] : cases) {
    try {
      read_all(write(folder.path() / name, bytes));
      ADD_FAILURE() << name << " was read";
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::data);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

TEST(RecordFiles, AFolderAPatternAndAListStandForSeveralFiles) {
  const support::TemporaryFolder folder;
  const std::string one = write(folder.path() / "b.jsonl", "{\"a\":2}\n"), other = write(folder.path() / "a.jsonl", "{\"a\":1}\n");
  write(folder.path() / "notes.md", "no records");
  const Lines in_order = {"1:{\"a\":1}", "1:{\"a\":2}"}, as_listed = {"1:{\"a\":2}", "1:{\"a\":1}"};
  EXPECT_EQ(read_all(folder.path().string()), in_order);
  EXPECT_EQ(read_all(folder.path().string() + "/*.jsonl"), in_order);
  EXPECT_EQ(read_all(one + "," + other), as_listed);
  EXPECT_THROW(read_all(folder.path().string() + "/*.csv"), base::UserError);
  EXPECT_THROW(read_all((folder.path() / "c.jsonl").string()), base::UserError);
}

TEST(RecordFiles, ALineOfTenMegabytesIsARecordLikeAnyOther) {
  const support::TemporaryFolder folder;
  const std::string path = write(folder.path() / "a.jsonl", "{\"a\":\"" + std::string(10 << 20, 'x') + "\"}\n{\"a\":\"y\"}\n");
  const Lines all = read_all(path);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_GT(all[0].size(), 10u << 20);
  EXPECT_EQ(all[1], "2:{\"a\":\"y\"}");
}

TEST(RecordFiles, ChunksOfATextFollowEachOtherWithoutASeam) {
  const support::TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 60000; ++line) text += fmt::format("line {} of it{}", line, line % 7 == 0 ? "\n\n  " : "\n");
  const Files files(write(folder.path() / "book.txt", text), /*as_text=*/true);
  Scanner scanner(files);
  std::string together;
  int chunks = 0;
  while (const auto chunk = scanner.next()) {
    EXPECT_EQ(chunk->line, 1 + std::count(together.begin(), together.end(), '\n'));
    EXPECT_TRUE(chunk->bytes[0] != ' ' && chunk->bytes[0] != '\n');
    together += chunk->bytes;
    ++chunks;
  }
  EXPECT_EQ(together, text);
  EXPECT_GT(chunks, 2);
}

}  // namespace
}  // namespace lockstep::corpus
