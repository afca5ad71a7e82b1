// Text, JSONL and Parquet files as a row of chunks that can be worked on side by side, and the documents in a chunk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace lockstep::tokenize {

struct InputOptions {
  std::vector<std::filesystem::path> files;  // .jsonl and .ndjson: one JSON object a line; .parquet: rows; all others: text
  std::string field = "text";                // where a JSON object or a row has its text
  bool messages = false;                     // a list of messages in that field is read as what they say
  bool split_lines = false;                  // text: every line that is not empty is a document; else a file is one
  bool skip_bad = false;                     // lines that cannot be read are counted and left out
};

enum class ChunkKind { json_lines, parquet_rows, text_lines, text_part };

struct Chunk {
  std::int64_t index = 0;
  ChunkKind kind = ChunkKind::text_part;
  std::filesystem::path path;
  std::int64_t first_line = 1;   // of a chunk of lines or rows
  std::uint64_t offset = 0;      // in the file, in bytes
  std::string bytes;             // of rows: each as a line of JSON
  std::uint64_t file_bytes = 0;  // how much of the file this is
  bool ends_document = true;     // text_part: the file ends here
};

// Where a text may be cut, at or behind the middle of `text`; nothing where there is no such place. Called under the reader's lock.
using FindCut = std::function<std::optional<std::size_t>(std::string_view text, std::size_t middle)>;

// Hands out chunks of about chunk_bytes in the files' order. Any thread may call next(). Errors are UserError(ExitCode::data).
class ChunkReader {
 public:
  ChunkReader(const InputOptions& options, std::size_t chunk_bytes, FindCut find_cut);
  ~ChunkReader();
  std::optional<Chunk> next();
  std::int64_t chunks();  // handed out so far
  std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  bool open_next() LOCKSTEP_REQUIRES(mutex_);
  void fill(std::size_t bytes) LOCKSTEP_REQUIRES(mutex_);
  Chunk take(std::size_t bytes) LOCKSTEP_REQUIRES(mutex_);
  std::optional<Chunk> take_rows() LOCKSTEP_REQUIRES(mutex_);
  std::size_t end_of_lines() LOCKSTEP_REQUIRES(mutex_);
  std::size_t end_of_part() LOCKSTEP_REQUIRES(mutex_);

  InputOptions options_;
  std::size_t chunk_bytes_;
  FindCut find_cut_;
  std::uint64_t total_bytes_ = 0;

  base::Mutex mutex_;
  std::size_t file_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // the next one to open
  std::ifstream stream_ LOCKSTEP_GUARDED_BY(mutex_);
  std::filesystem::path path_ LOCKSTEP_GUARDED_BY(mutex_);
  ChunkKind kind_ LOCKSTEP_GUARDED_BY(mutex_) = ChunkKind::text_part;
  bool open_ LOCKSTEP_GUARDED_BY(mutex_) = false, ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::string pending_ LOCKSTEP_GUARDED_BY(mutex_);  // read and not yet handed out
  struct Parquet;
  std::unique_ptr<Parquet> parquet_ LOCKSTEP_GUARDED_BY(mutex_);  // the open file, if it is one
  std::int64_t line_ LOCKSTEP_GUARDED_BY(mutex_) = 1, index_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t offset_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

// Calls `take` with every document of the chunk (a text_part is one piece of a document). Returns how many bad lines or rows
// were left out.
std::int64_t for_each_document(const Chunk& chunk, const InputOptions& options, const std::function<void(std::string_view)>& take);

}  // namespace lockstep::tokenize
