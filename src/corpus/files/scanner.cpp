// Cuts files into records, without reading more of them than where they end.
#include <algorithm>

#include "base/error.h"
#include "corpus/files/csv.h"
#include "corpus/files/file.h"
#include "corpus/files/json_scan.h"
#include "text/parquet.h"

namespace lockstep::corpus {
namespace {

// Large enough that a core is busy with it for a while, small enough that all cores have one.
constexpr std::size_t chunk_bytes = 1u << 18;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

Scanner::Scanner(const Files& files) : files_(files) {}
Scanner::~Scanner() = default;

void Scanner::count_lines(std::string_view all, std::size_t until) {
  line_ += static_cast<std::uint32_t>(
      std::count(all.begin() + static_cast<std::ptrdiff_t>(counted_), all.begin() + static_cast<std::ptrdiff_t>(until), '\n'));
  counted_ = until;
}

RawRecord Scanner::take(std::string_view all, std::size_t end) {
  count_lines(all, at_);
  const RawRecord record{all.substr(at_, end - at_), file_, line_, nullptr};
  at_ = end;
  return record;
}

std::optional<RawRecord> Scanner::next() {
  while (file_ < files_.count()) {
    const Files::File& file = *files_.files_[file_];
    if (!inside_) {
      inside_ = true;
      at_ = file.begin;
      counted_ = 0;
      line_ = 1;
    }
    std::optional<RawRecord> record;
    switch (file.layout) {
      case Layout::jsonl:
      case Layout::lines: record = next_line(file); break;
      case Layout::json: record = next_element(file); break;
      case Layout::csv: record = next_row(file); break;
      case Layout::parquet: record = next_parquet(file); break;
      case Layout::chunks: record = next_chunk(file); break;
    }
    if (record) return record;
    rows_.reset();
    finished_bytes_ += file.all.size();
    at_ = 0;
    inside_ = false;
    ++file_;
  }
  return std::nullopt;
}

std::optional<RawRecord> Scanner::next_line(const Files::File& file) {
  while (at_ < file.all.size()) {
    const std::size_t end = std::min(file.all.find('\n', at_), file.all.size());
    std::size_t last = end;
    while (last > at_ && is_space(file.all[last - 1])) --last;
    if (last == at_) {  // an empty line
      at_ = std::min(end + 1, file.all.size());
      continue;
    }
    RawRecord record = take(file.all, last);
    at_ = std::min(end + 1, file.all.size());
    return record;
  }
  return std::nullopt;
}

std::optional<RawRecord> Scanner::next_element(const Files::File& file) {
  const auto broken = [&](std::string_view what) {
    count_lines(file.all, std::min(at_, file.all.size()));
    return base::data_error("data", "{}:{}: {}. Nothing after it can be read; mend the file.", file.path.string(), line_, what);
  };
  at_ = skip_space(file.all, at_);
  if (file.bare_values && at_ == file.all.size()) return std::nullopt;
  if (at_ == file.all.size()) throw broken("the list of records is never closed with ]");
  if (!file.bare_values && file.all[at_] == ']') {
    at_ = skip_space(file.all, at_ + 1);
    if (file.closing.empty() && at_ < file.all.size()) throw broken("there is more after the ] that closes the list of records");
    at_ = file.all.size();
    return std::nullopt;
  }
  const auto end = skip_value(file.all, at_);
  if (!end) throw broken("the record that starts here is never closed: a bracket or a quote is missing");
  if (*end == at_) throw broken(fmt::format("expected a record, found '{}'", file.all[at_]));
  const RawRecord record = take(file.all, *end);
  at_ = skip_space(file.all, at_);
  if (file.bare_values) return record;
  if (at_ < file.all.size() && file.all[at_] == ',') {
    ++at_;
  } else if (at_ == file.all.size() || file.all[at_] != ']') {
    throw broken("expected , or ] after a record");
  }
  return record;
}

std::optional<RawRecord> Scanner::next_row(const Files::File& file) {
  while (at_ < file.all.size()) {
    const auto end = csv_row_end(file.all, at_, file.separator);
    if (!end) {
      count_lines(file.all, at_);
      throw base::data_error("data", "{}:{}: a quote that opens in this row is never closed. Double the quotes inside quoted fields.",
                             file.path.string(), line_);
    }
    const bool empty = skip_space(file.all, at_) >= *end;
    const RawRecord record = take(file.all, *end);
    at_ = std::min(*end + 1, file.all.size());
    if (!empty) return record;
  }
  return std::nullopt;
}

std::optional<RawRecord> Scanner::next_parquet(const Files::File& file) {
  if (!rows_) {
    rows_ = std::make_unique<text::ParquetRows>(file.all, file.path.string());
    line_ = 0;
  }
  if (!lines_ || lines_at_ == lines_->size()) {
    auto lines = rows_->next_lines();
    lines_ = lines ? std::make_shared<const std::string>(std::move(*lines)) : nullptr;
    lines_at_ = 0;
    if (!lines_) return std::nullopt;
  }
  const std::size_t end = lines_->find('\n', lines_at_);
  const std::string_view row = std::string_view(*lines_).substr(lines_at_, end - lines_at_);
  lines_at_ = end + 1;
  ++line_;
  // How far it is, in bytes of the file: rows are taken to be equally long.
  at_ = static_cast<std::size_t>(static_cast<double>(file.all.size()) * line_ /
                                 static_cast<double>(std::max<std::uint64_t>(1, rows_->count())));
  at_ = std::min(at_, file.all.size());
  return RawRecord{row, file_, line_, lines_};
}

// Cut where a line starts with a letter: tokenizers put a token's boundary there too.
std::optional<RawRecord> Scanner::next_chunk(const Files::File& file) {
  if (at_ >= file.all.size()) return std::nullopt;
  std::size_t end = at_ + chunk_bytes;
  while (end < file.all.size() && !(file.all[end - 1] == '\n' && !is_space(file.all[end]))) ++end;
  return take(file.all, std::min(end, file.all.size()));
}

}  // namespace lockstep::corpus
