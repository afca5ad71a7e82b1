// Chunks of files and cuts in long texts: small sizes, so that every border is met.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "front/tokenize/cut.h"
#include "front/tokenize/inputs.h"
#include "support/temporary_folder.h"
#include "text/train.h"

namespace lockstep::tokenize {
namespace {

namespace fs = std::filesystem;

fs::path write(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::optional<std::size_t> at_space(std::string_view text, std::size_t middle) {
  const std::size_t at = text.find(' ', middle);
  return at == std::string_view::npos ? std::nullopt : std::optional(at);
}

struct Read {
  std::vector<std::string> documents;
  std::vector<std::int64_t> first_lines;
  std::int64_t bad = 0, chunks = 0;
};

Read read_all(const InputOptions& options, std::size_t chunk_bytes) {
  ChunkReader reader(options, chunk_bytes, at_space);
  Read read;
  bool inside = false;
  while (const auto chunk = reader.next()) {
    EXPECT_EQ(chunk->index, read.chunks++);
    read.first_lines.push_back(chunk->first_line);
    read.bad += for_each_document(*chunk, options, [&](std::string_view text) {
      if (inside) {
        read.documents.back() += text;
      } else {
        read.documents.emplace_back(text);
      }
    });
    inside = chunk->kind == ChunkKind::text_part && !chunk->ends_document;
  }
  return read;
}

TEST(ChunkReader, GivesTheSameDocumentsInChunksOfAnySize) {
  const support::TemporaryFolder folder;
  const std::string text = "one two  three\n\nfour \xC3\xA9\xC3\xA9 five\nsix";
  const InputOptions options{
      .files = {write(folder.path() / "a.txt", text), write(folder.path() / "empty.txt", ""),
                write(folder.path() / "b.jsonl", "{\"text\": \"x\"}\n\n{\"text\": \"\"}\r\n{\"text\": \"long long line\"}"),
                write(folder.path() / "c.txt", "last")}};
  for (std::size_t bytes = 1; bytes < 60; ++bytes)
    EXPECT_EQ(read_all(options, bytes).documents, (std::vector<std::string>{text, "x", "", "long long line", "last"})) << bytes;
  InputOptions lines = options;
  lines.split_lines = true;
  for (std::size_t bytes = 1; bytes < 60; ++bytes) {
    EXPECT_EQ(read_all(lines, bytes).documents,
              (std::vector<std::string>{"one two  three", "four \xC3\xA9\xC3\xA9 five", "six", "x", "", "long long line", "last"}))
        << bytes;
  }
}

TEST(ChunkReader, CountsLinesOverChunks) {
  const support::TemporaryFolder folder;
  const InputOptions options{.files = {write(folder.path() / "b.jsonl", "{\"text\": \"x\"}\n\n{\"text\": \"y\"}\n{\"text\": 5}\n")}};
  for (std::size_t bytes = 1; bytes < 80; ++bytes) {
    try {
      read_all(options, bytes);
      ADD_FAILURE() << "line 4 was taken";
    } catch (const base::UserError& error) {
      EXPECT_NE(std::string(error.what()).find("b.jsonl:4: 'text' is not a text"), std::string::npos) << error.what();
    }
  }
  InputOptions skip = options;
  skip.skip_bad = true;
  EXPECT_EQ(read_all(skip, 1).bad, 1);
  EXPECT_EQ(read_all(skip, 1).documents, (std::vector<std::string>{"x", "y"}));
}

TEST(FindCut, CutsWhereNoTokenChanges) {
  const support::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat, and  the dog;\n\n  don't  \t 12345 \xC3\xA9t\xC3\xA9 " + std::to_string(i * 7919);
  bool given = false;
  write(folder.path() / "tokenizer.json",
        text::train_bpe({.vocab_size = 400, .special = {"<|end|>"}}, [&]() -> std::optional<std::string_view> {
          if (std::exchange(given, true)) return std::nullopt;
          return text;
        }));
  const auto tokenizer = text::Tokenizer::open(folder.path());
  const auto whole = tokenizer->encode(text, text::SpecialTokens::leave_out);
  for (const std::size_t size : {37u, 200u, 1111u}) {
    std::vector<std::int32_t> joined;
    std::string_view rest = text;
    int parts = 0;
    while (!rest.empty()) {
      const auto cut = find_cut(*tokenizer, rest, size);
      EXPECT_GE(cut.value_or(size), size);
      const auto tokens = tokenizer->encode(rest.substr(0, cut.value_or(rest.size())), text::SpecialTokens::leave_out);
      joined.insert(joined.end(), tokens.begin(), tokens.end());
      rest.remove_prefix(cut.value_or(rest.size()));
      ++parts;
    }
    EXPECT_GT(parts, 3);
    EXPECT_EQ(joined, whole) << size;
  }
  EXPECT_EQ(find_cut(*tokenizer, "nospacehere", 3), std::nullopt);
}

}  // namespace
}  // namespace lockstep::tokenize
