// Tokenised records in one file: written once, mapped by every rank.
//
//   tokens u32[], trained bits (one a token, low bit first), samples {first token, file, line, record}[] and one past the last,
//   counts as JSON, trailer. Little-endian. The trailer carries sizes and checksums; a file without a good one is not trusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"

namespace lockstep::corpus {

// What became of all records.
struct Counts {
  std::string format;  // "messages"
  std::int64_t records = 0, samples = 0, tokens = 0, trained_tokens = 0;
  std::int64_t cut = 0, cut_tokens = 0;               // records that lost tokens, and how many
  std::int64_t in_pieces = 0;                         // raw texts that became several samples
  std::int64_t too_long = 0, untrained = 0, bad = 0;  // left out
  std::vector<std::string> examples;                  // "chat.jsonl:12 has no field 'messages'": the first few that were left out

  std::string to_json() const;
  static Counts from_json(const std::string& text);
  // "12,345 records, 4.1M tokens, 38% trained, 12 cut, 3 skipped"
  std::string summary() const;
};

struct SampleEntry {
  std::uint64_t first_token = 0;
  std::uint32_t file = 0, line = 0;
  std::uint64_t record = 0;  // counts the records that were read; pieces of a text share it
};

// Any thread may read.
class Cache {
 public:
  enum class Verify { sizes, content };  // content reads the whole file once
  // Nothing where there is no file of that key, or one that is cut off or damaged.
  static std::shared_ptr<const Cache> open(const std::filesystem::path& path, const std::string& key, Verify verify);

  std::int64_t samples() const { return static_cast<std::int64_t>(entries_.size()) - 1; }
  std::span<const std::uint32_t> tokens() const { return tokens_; }
  std::span<const std::uint32_t> tokens(std::int64_t sample) const;
  // Is token `index` of the sample trained?
  bool trained(std::int64_t sample, std::size_t index) const {
    const std::uint64_t bit = entries_[static_cast<std::size_t>(sample)].first_token + index;
    return (bits_[bit / 8] >> (bit % 8) & 1) != 0;
  }
  const SampleEntry& entry(std::int64_t sample) const { return entries_[static_cast<std::size_t>(sample)]; }
  std::uint32_t largest_token() const { return largest_token_; }
  const Counts& counts() const { return counts_; }
  const std::string& key() const { return key_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  explicit Cache(base::MappedFile file) : file_(std::move(file)) {}
  bool read(const std::string& key, Verify verify);

  base::MappedFile file_;
  std::span<const std::uint32_t> tokens_;
  std::span<const std::uint8_t> bits_;
  std::span<const SampleEntry> entries_;
  std::uint32_t largest_token_ = 0;
  Counts counts_;
  std::string key_;
};

// Writes such a file front to back. finish() makes it last; without it nothing at `path` changes.
class CacheWriter {
 public:
  CacheWriter(base::FileSystem& files, std::filesystem::path path, std::string key);
  void add(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> trained, const SampleEntry& origin);
  void finish(const Counts& counts);

 private:
  void flush();
  void write(std::span<const std::byte> bytes, std::uint32_t& checksum);

  base::FileSystem& files_;
  std::filesystem::path path_, beside_;
  std::string key_;
  std::unique_ptr<base::FileWriter> writer_;
  std::vector<std::uint32_t> buffer_;
  std::vector<std::uint8_t> bits_;
  std::vector<SampleEntry> entries_;
  std::uint64_t tokens_ = 0;
  std::uint32_t largest_token_ = 0;
  std::uint32_t tokens_checksum_ = 0;
};

}  // namespace lockstep::corpus
