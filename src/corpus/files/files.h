// Files of records: which there are, how they are laid out, and one record after the other out of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::text {
class ParquetRows;
}

namespace lockstep::corpus {

using Json = nlohmann::ordered_json;

// Something is wrong with one record. Whoever walks over records adds where it stands, and stops or counts it.
class Unreadable : public std::runtime_error {
 public:
  explicit Unreadable(const std::string& what, std::uint32_t lines_below = 0) : std::runtime_error(what), lines_below_(lines_below) {}
  std::uint32_t lines_below() const { return lines_below_; }  // how far below the record's first line

 private:
  std::uint32_t lines_below_;
};

// A record that may not be passed over, whatever data.bad_records says.
class Refused : public Unreadable {
 public:
  using Unreadable::Unreadable;
};

// One record as it stands in its file; lives as long as the Files it came from.
struct RawRecord {
  std::string_view bytes;
  std::uint32_t file = 0;
  std::uint32_t line = 0;                    // where it starts, counted from 1; of Parquet, its row
  std::shared_ptr<const std::string> owner;  // what holds the bytes where the file itself does not
};

enum class Layout {
  jsonl,    // one JSON object a line
  json,     // one array of objects, or an object that holds one
  csv,      // RFC 4180 with a header line; tab-separated where the file's name ends in .tsv
  lines,    // a line of text is a record
  parquet,  // a row is a record, handed out as JSON
  chunks,   // the whole file is one text, in pieces that can be tokenized apart
};

// Mapped, never copied. Errors are UserError(ExitCode::data) that name the file. Immutable; any thread may call it.
class Files {
 public:
  // `path`: a file, a folder of them, a pattern such as data/*.jsonl, or several separated by commas.
  // as_text: files are text in chunks, whatever they are called.
  explicit Files(const std::string& path, bool as_text = false);
  ~Files();
  Files(const Files&) = delete;

  std::size_t count() const { return files_.size(); }
  const std::filesystem::path& path(std::size_t file) const;
  std::string_view bytes(std::size_t file) const;
  std::uint64_t total_bytes() const;
  std::string names() const;  // "chat.jsonl", or "3 files in data"

  // "chat.jsonl:12"
  std::string place(const RawRecord& record, std::uint32_t lines_below = 0) const;
  // The record's fields; throws Unreadable.
  Json parse(const RawRecord& record) const;

  struct File;

 private:
  friend class Scanner;
  std::vector<std::unique_ptr<const File>> files_;
  std::string asked_;
};

// Walks over all records in order. One thread.
class Scanner {
 public:
  explicit Scanner(const Files& files);
  ~Scanner();
  // Nothing at the end. UserError where the file's structure is broken, so that no further record could be found.
  std::optional<RawRecord> next();
  std::uint64_t bytes_read() const { return finished_bytes_ + at_; }

 private:
  std::optional<RawRecord> next_line(const Files::File& file);
  std::optional<RawRecord> next_element(const Files::File& file);
  std::optional<RawRecord> next_row(const Files::File& file);
  std::optional<RawRecord> next_parquet(const Files::File& file);
  std::optional<RawRecord> next_chunk(const Files::File& file);
  RawRecord take(std::string_view all, std::size_t end);
  void count_lines(std::string_view all, std::size_t until);

  const Files& files_;
  std::uint32_t file_ = 0;
  bool inside_ = false;  // file_ has been begun
  std::size_t at_ = 0;
  std::size_t counted_ = 0;  // line_ is right for this place
  std::uint32_t line_ = 1;
  std::uint64_t finished_bytes_ = 0;
  std::unique_ptr<text::ParquetRows> rows_;   // of the current file, if it is Parquet
  std::shared_ptr<const std::string> lines_;  // rows that were read and not handed out yet, from lines_at_ on
  std::size_t lines_at_ = 0;
};

}  // namespace lockstep::corpus
