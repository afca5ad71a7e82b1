// Reads files piece by piece, so that memory does not grow with them.
#include "front/tokenize/inputs.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "text/parquet.h"

namespace lockstep::tokenize {
namespace {

namespace fs = std::filesystem;
constexpr auto npos = std::string_view::npos;
constexpr std::size_t largest_piece = 1ull << 30;

ChunkKind kind_of(const fs::path& path, bool split_lines) {
  const std::string ending = base::lower(path.extension().string());
  if (ending == ".jsonl" || ending == ".ndjson") return ChunkKind::json_lines;
  if (ending == ".parquet") return ChunkKind::parquet_rows;
  if (ending == ".json" || ending == ".gz" || ending == ".zst" || ending == ".bin") {
    throw base::data_error("data", "{}: {} files are not read here. Give text, Parquet, or JSONL (one JSON object a line, named .jsonl).",
                           path.string(), ending);
  }
  return split_lines ? ChunkKind::text_lines : ChunkKind::text_part;
}

std::uint64_t checked_size(const fs::path& path) {
  std::error_code error;
  base::refuse_if_hidden(path);
  if (!fs::exists(path, error)) throw base::data_error("data", "{} does not exist.", path.string());
  if (fs::is_directory(path, error))
    throw base::data_error("data", "{} is a folder. Name its files, {}/*.jsonl say.", path.string(), path.string());
  const std::uint64_t size = fs::file_size(path, error);
  if (error) throw base::data_error("data", "{} is not a plain file ({}).", path.string(), error.message());
  return size;
}

// What the reader says, without the line's text, which may be long and need not be UTF-8.
std::string reason_of(const base::JsonError& failure) {
  const std::string& reason = failure.reason();
  return fmt::format("column {}: {}", failure.byte() + 1,
                     reason.substr(0, std::min(reason.find("; last read"), reason.find(" - unexpected"))));
}

std::string_view without_line_end(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  return line;
}

// What is said in a conversation, a message a line; nothing where the value is none.
std::optional<std::string> text_of_messages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array()) return std::nullopt;
  std::string text;
  for (const auto& message : messages) {
    const auto said = !message.is_object() ? message.end() : message.contains("content") ? message.find("content") : message.find("value");
    if (said == message.end() || !(said->is_string() || said->is_null())) return std::nullopt;
    if (said->is_string()) text += said->get_ref<const std::string&>() + "\n";
  }
  return text;
}

std::string text_of_json_line(std::string_view line, const InputOptions& options, const std::string& place) {
  const std::string& field = options.field;
  try {
    auto json = base::parse_json(line);
    if (!json.is_object())
      throw base::data_error("data", "{}: not a JSON object but {}. Every line is an object.", place, json.type_name());
    const auto found = json.find(field);
    if (found == json.end()) {
      std::vector<std::string> names;
      for (const auto& [name, value] : json.items()) names.push_back(name);
      throw base::data_error("data", "{}: there is no field '{}', only {}. Name the one that holds the text with --field.", place, field,
                             names.empty() ? "an empty object" : base::join(names, ", "));
    }
    if (auto said = options.messages ? text_of_messages(*found) : std::nullopt) return *std::move(said);
    if (!found->is_string()) throw base::data_error("data", "{}: '{}' is not a text but {}.", place, field, found->type_name());
    return std::move(found->get_ref<std::string&>());
  } catch (const base::JsonError& failure) {
    throw base::data_error("data", "{}: not valid JSON ({}). Mend the line, or leave such lines out with --skip-bad.", place,
                           reason_of(failure));
  }
}

}  // namespace

struct ChunkReader::Parquet {
  explicit Parquet(const fs::path& path)
      : file(path), rows({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string()) {}
  base::MappedFile file;
  text::ParquetRows rows;
};

ChunkReader::~ChunkReader() = default;

ChunkReader::ChunkReader(const InputOptions& options, std::size_t chunk_bytes, FindCut find_cut)
    : options_(options), chunk_bytes_(chunk_bytes), find_cut_(std::move(find_cut)) {
  for (const fs::path& path : options_.files) {
    kind_of(path, options_.split_lines);
    total_bytes_ += checked_size(path);
  }
}

bool ChunkReader::open_next() {
  if (file_ == options_.files.size()) return false;
  path_ = options_.files[file_++];
  kind_ = kind_of(path_, options_.split_lines);
  if (kind_ == ChunkKind::parquet_rows) {
    parquet_ = std::make_unique<Parquet>(path_);
  } else if (stream_ = std::ifstream(path_, std::ios::binary); !stream_) {
    throw base::data_error("data", "{} cannot be opened: {}.", path_.string(), std::strerror(errno));
  }
  open_ = true;
  ended_ = false;
  line_ = 1;
  offset_ = 0;
  return true;
}

// Reads until that many bytes are pending, or the file ends.
void ChunkReader::fill(std::size_t bytes) {
  while (!ended_ && pending_.size() < bytes) {
    const std::size_t old = pending_.size();
    pending_.resize(bytes);
    stream_.read(pending_.data() + old, static_cast<std::streamsize>(bytes - old));
    pending_.resize(old + static_cast<std::size_t>(stream_.gcount()));
    if (stream_.bad()) throw base::data_error("data", "{} cannot be read: {}.", path_.string(), std::strerror(errno));
    ended_ = stream_.eof();
  }
}

std::size_t ChunkReader::end_of_lines() {
  for (std::size_t wanted = chunk_bytes_;; wanted *= 2) {
    fill(wanted);
    const std::size_t end = std::string_view(pending_).substr(0, wanted).rfind('\n');
    if (end != npos) return end + 1;
    if (ended_) return pending_.size();
    if (wanted > largest_piece) throw base::data_error("data", "{}:{}: this line is longer than 1 GiB.", path_.string(), line_);
  }
}

std::size_t ChunkReader::end_of_part() {
  for (std::size_t wanted = chunk_bytes_;; wanted *= 2) {
    fill(wanted + wanted / 4 + 8192);
    if (pending_.size() <= wanted) return pending_.size();
    if (const auto cut = find_cut_(pending_, wanted)) return *cut;
    if (ended_) return pending_.size();
    if (wanted > largest_piece) {
      throw base::data_error("data",
                             "{} is one document of more than 1 GiB, and this tokenizer cannot cut it without changing tokens. Use "
                             "--split-lines to make every line a document.",
                             path_.string());
    }
  }
}

Chunk ChunkReader::take(std::size_t bytes) {
  Chunk chunk{.index = index_++, .kind = kind_, .path = path_, .first_line = line_, .offset = offset_};
  chunk.bytes = pending_.substr(0, bytes);
  chunk.file_bytes = bytes;
  pending_.erase(0, bytes);
  line_ += std::count(chunk.bytes.begin(), chunk.bytes.end(), '\n');
  offset_ += bytes;
  if (pending_.empty()) fill(1);
  chunk.ends_document = pending_.empty() && ended_;
  if (chunk.ends_document) open_ = false;
  return chunk;
}

// Nothing at the file's end.
std::optional<Chunk> ChunkReader::take_rows() {
  Chunk chunk{.kind = kind_, .path = path_, .first_line = line_, .offset = offset_};
  while (chunk.bytes.size() < chunk_bytes_) {
    const auto lines = parquet_->rows.next_lines();
    if (!lines) break;
    chunk.bytes += *lines;
    line_ += std::count(lines->begin(), lines->end(), '\n');
  }
  if (chunk.bytes.empty()) return std::nullopt;
  chunk.index = index_++;
  // Rows are taken to be equally long.
  const auto share = static_cast<double>(line_ - 1) / static_cast<double>(std::max<std::uint64_t>(1, parquet_->rows.count()));
  const auto end = static_cast<std::uint64_t>(std::min(share, 1.0) * static_cast<double>(parquet_->file.bytes().size()));
  chunk.file_bytes = end - std::min(end, offset_);
  offset_ += chunk.file_bytes;
  return chunk;
}

std::optional<Chunk> ChunkReader::next() {
  const base::Lock lock(mutex_);
  try {
    while (open_ || open_next()) {
      if (kind_ == ChunkKind::parquet_rows) {
        if (auto rows = take_rows()) return rows;
        open_ = false;
        continue;
      }
      fill(1);
      if (!pending_.empty()) return take(kind_ == ChunkKind::text_part ? end_of_part() : end_of_lines());
      open_ = false;  // an empty file is no document
    }
  } catch (...) {
    open_ = false;  // one thread reports it, the others find the end
    file_ = options_.files.size();
    throw;
  }
  return std::nullopt;
}

std::int64_t ChunkReader::chunks() {
  const base::Lock lock(mutex_);
  return index_;
}

std::int64_t for_each_document(const Chunk& chunk, const InputOptions& options, const std::function<void(std::string_view)>& take) {
  if (chunk.kind == ChunkKind::text_part) {
    if (const auto bad = base::first_invalid_utf8(chunk.bytes)) {
      throw base::data_error(
          "data", "{} is not UTF-8 at byte {}. Convert it (iconv -t UTF-8), or use --split-lines --skip-bad to leave such lines out.",
          chunk.path.string(), chunk.offset + *bad);
    }
    take(chunk.bytes);
    return 0;
  }
  std::int64_t line_number = chunk.first_line, bad_lines = 0;
  for (std::size_t at = 0; at < chunk.bytes.size(); ++line_number) {
    const std::size_t end = std::min(chunk.bytes.find('\n', at), chunk.bytes.size() - 1) + 1;
    const std::string_view line = without_line_end(std::string_view(chunk.bytes).substr(at, end - at));
    at = end;
    if (line.find_first_not_of(" \t") == npos) continue;
    const bool row = chunk.kind == ChunkKind::parquet_rows;
    const std::string place = fmt::format("{}{}{}", chunk.path.string(), row ? ", row " : ":", line_number);
    try {
      if (row || chunk.kind == ChunkKind::json_lines) {
        take(text_of_json_line(line, options, place));
      } else {
        if (const auto bad = base::first_invalid_utf8(line))
          throw base::data_error("data", "{}: not UTF-8 at byte {} of the line. Convert the file, or leave such lines out with --skip-bad.",
                                 place, *bad);
        take(line);
      }
    } catch (const base::UserError&) {
      if (!options.skip_bad) throw;
      ++bad_lines;
    }
  }
  return bad_lines;
}

}  // namespace lockstep::tokenize
