// Maps files and reads single records out of them.
#include "corpus/files/files.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "corpus/files/csv.h"
#include "corpus/files/file.h"
#include "corpus/files/find.h"
#include "corpus/files/json_scan.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;

base::MappedFile map(const fs::path& path) {
  try {
    return base::MappedFile(path);
  } catch (const base::UserError& failure) {
    throw base::data_error("data", "{} could not be opened: {}", path.string(), failure.what());
  }
}

std::uint32_t lines_before(std::string_view text, std::size_t at) {
  return static_cast<std::uint32_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n'));
}

std::size_t column_of(std::string_view text, std::size_t at) {
  const std::size_t line_start = at == 0 ? text.npos : text.rfind('\n', at - 1);
  return at - (line_start == text.npos ? 0 : line_start + 1) + 1;
}

void expect_utf8(std::string_view text) {
  const auto at = base::first_invalid_utf8(text);
  if (!at) return;
  throw Unreadable(fmt::format("is not UTF-8: byte 0x{:02x} at column {}. Convert the file, for example with iconv -f latin1 -t utf-8",
                               static_cast<unsigned char>(text[*at]), column_of(text, *at)),
                   lines_before(text, *at));
}

Json parse_json(std::string_view text) {
  try {
    Json record = base::parse_json(text);
    if (!record.is_object()) throw Unreadable(fmt::format("is a JSON {}, not an object with fields", record.type_name()));
    return record;
  } catch (const base::JsonError& error) {
    throw Unreadable(fmt::format("is broken JSON at column {}: {}", column_of(text, error.byte()), error.reason()),
                     lines_before(text, error.byte()));
  }
}

Json parse_row(std::string_view row, const Files::File& file) {
  std::vector<std::string> fields = csv_fields(row, file.separator);
  if (fields.size() != file.header.size()) {
    throw Unreadable(fmt::format("has {} fields, the header names {} ({}). Put quotes around fields that hold the separator or a line end",
                                 fields.size(), file.header.size(), base::join(file.header, ", ")));
  }
  Json record = Json::object();
  for (std::size_t i = 0; i < fields.size(); ++i) record[file.header[i]] = std::move(fields[i]);
  return record;
}

}  // namespace

Files::File::File(fs::path path_, bool as_text) : path(std::move(path_)), mapped(map(path)) {
  const auto bytes = mapped.bytes();
  all = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  if (all.starts_with("\xef\xbb\xbf")) begin = 3;  // the mark that some editors put first
  const std::string ending = base::lower(path.extension().string());
  if (as_text) {
    layout = Layout::chunks;
  } else if (ending == ".parquet") {
    layout = Layout::parquet;
  } else if (ending == ".csv" || ending == ".tsv") {
    layout = Layout::csv;
    separator = ending == ".tsv" ? '\t' : ',';
    read_header();
  } else if (ending == ".txt") {
    layout = Layout::lines;
  } else {
    find_json_layout();
  }
}

void Files::File::read_header() {
  begin = skip_space(all, begin);
  if (begin == all.size()) return;
  const auto end = csv_row_end(all, begin, separator);
  if (!end) throw base::data_error("data", "{}:1: a quote in the header is never closed.", path.string());
  const std::string_view row = all.substr(begin, *end - begin);
  if (base::first_invalid_utf8(row)) throw base::data_error("data", "{}:1: the header is not UTF-8.", path.string());
  header = csv_fields(row, separator);
  for (std::size_t i = 0; i < header.size(); ++i) {
    header[i] = base::trim(header[i]);
    if (header[i].empty() || std::find(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(i), header[i]) !=
                                 header.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw base::data_error("data", "{}:1: column {} of the header is {}. The first line names the columns, each once.", path.string(),
                             i + 1, header[i].empty() ? "empty" : fmt::format("'{}' a second time", header[i]));
    }
  }
  begin = std::min(all.size(), *end + 1);
}

void Files::File::find_json_layout() {
  const std::size_t first = skip_space(all, begin);
  layout = Layout::jsonl;
  if (first == all.size()) return;
  if (all[first] == '[') {
    layout = Layout::json;
    begin = first + 1;
    return;
  }
  if (all[first] != '{') return;
  const std::size_t line_end = std::min(all.find('\n', first), all.size());
  const auto object_end = skip_value(all, first);
  const bool on_one_line = object_end && *object_end <= line_end;
  const std::string ending = base::lower(path.extension().string());
  if (on_one_line && (ending == ".jsonl" || ending == ".ndjson" || skip_space(all, *object_end) < all.size())) return;
  if (!object_end && ending != ".json") return;  // a broken first line, as its reader will say
  // One object: a record of its own, or what holds the list of them.
  static constexpr std::array<std::string_view, 7> of_records = {"messages", "conversations", "prompt", "instruction",
                                                                 "question", "text",          "input"};
  std::vector<Member> lists;
  for (Member& member : members_of(all, first)) {
    if (std::find(of_records.begin(), of_records.end(), member.name) != of_records.end()) {
      layout = on_one_line ? Layout::jsonl : Layout::json;
      begin = first;
      bare_values = layout == Layout::json;
      return;
    }
    if (member.value < all.size() && all[member.value] == '[') lists.push_back(std::move(member));
  }
  if (lists.size() > 1) {
    throw base::data_error("data",
                           "{}: the object holds {} lists ({}, {}, ...), so which one are the records? Keep one, or write them as JSONL.",
                           path.string(), lists.size(), lists[0].name, lists[1].name);
  }
  if (lists.empty()) return;
  layout = Layout::json;
  begin = lists[0].value + 1;
  closing = "}";
}

Files::Files(const std::string& path, bool as_text) : asked_(path) {
  for (fs::path& found : find_files(path)) files_.push_back(std::make_unique<const File>(std::move(found), as_text));
}
Files::~Files() = default;

const fs::path& Files::path(std::size_t file) const { return files_.at(file)->path; }
std::string_view Files::bytes(std::size_t file) const { return files_.at(file)->all; }

std::uint64_t Files::total_bytes() const {
  std::uint64_t total = 0;
  for (const auto& file : files_) total += file->all.size();
  return total;
}

std::string Files::names() const {
  return files_.size() == 1 ? files_.front()->path.string() : fmt::format("{} ({} files)", asked_, files_.size());
}

std::string Files::place(const RawRecord& record, std::uint32_t lines_below) const {
  return fmt::format("{}:{}", path(record.file).string(), record.line + lines_below);
}

Json Files::parse(const RawRecord& record) const {
  const File& file = *files_.at(record.file);
  expect_utf8(record.bytes);
  switch (file.layout) {
    case Layout::jsonl:
    case Layout::json:
    case Layout::parquet: return parse_json(record.bytes);
    case Layout::csv: return parse_row(record.bytes, file);
    case Layout::lines:
    case Layout::chunks: return Json{{"text", record.bytes}};
  }
  throw base::Bug("a layout without a parser");
}

}  // namespace lockstep::corpus
