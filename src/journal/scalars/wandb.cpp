// LevelDB's log format (blocks of 32 KiB, a record in one piece or several, each with its checksum) around W&B's protocol buffers.
#include "journal/scalars/wandb.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/hash/crc32.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "journal/scalars/protobuf.h"

namespace lockstep::journal {
namespace {

using namespace protobuf;

constexpr std::size_t block_bytes = 32768, head_bytes = 7;
enum Piece { whole = 1, first = 2, middle = 3, last = 4 };

// Over the kind of piece and then its bytes.
std::uint32_t checksum(int kind, std::string_view bytes) {
  const char first = static_cast<char>(kind);
  return base::crc32(bytes, base::crc32({&first, 1}));
}

double wall_seconds() {
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// HistoryItem, ConfigItem and SummaryItem alike: key = 1, value_json = 16.
std::string item(std::string_view key, std::string_view json) {
  std::string out;
  put_text(out, 1, key);
  put_text(out, 16, json);
  return out;
}

std::string number_json(double value) {
  return std::isfinite(value) ? nlohmann::json(value).dump() : value > 0 ? "Infinity" : value < 0 ? "-Infinity" : "NaN";
}

// A setting's value: a number, true or false where it reads as one, a text otherwise.
std::string value_json(const std::string& text) {
  if (text.starts_with('"') && base::json_if_any(text)) return text;
  if (text == "true" || text == "false" || base::parse_integer(text)) return text;
  if (const auto number = base::parse_number(text); number && std::isfinite(*number)) return number_json(*number);
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::filesystem::path file_of(const std::filesystem::path& folder, const std::string& id) {
  std::string label = base::time_label(std::time(nullptr));
  label[label.find('-')] = '_';
  return folder / fmt::format("offline-run-{}-{}", label, id) / fmt::format("run-{}.wandb", id);
}

// RunRecord: run_id = 1, project = 3, config = 4 { update = 1 }, display_name = 8, starting_step = 14, start_time = 17 { seconds = 1 },
// resumed = 18.
std::string run_record(const WandbWriter::Options& options, double begun) {
  std::string config, run, start;
  for (const auto& [key, value] : options.settings) put_text(config, 1, item(key, value_json(value)));
  put_number(start, 1, static_cast<std::int64_t>(begun));
  put_text(run, 1, options.id);
  put_text(run, 3, options.project);
  put_text(run, 4, config);
  put_text(run, 8, options.name);
  if (options.resumed_at_step > 0) put_number(run, 14, options.resumed_at_step);
  put_text(run, 17, start);
  if (options.resumed_at_step > 0) put_number(run, 18, 1);
  return run;
}

}  // namespace

WandbWriter::WandbWriter(const std::filesystem::path& folder, const Options& options)
    : bytes_(
          [&files = options.files != nullptr ? *options.files : base::real_files(), path = file_of(folder, options.id)] {
            files.create_directories(path.parent_path());
            return files.open_to_append(path);
          },
          {}),
      begun_(wall_seconds()) {
  std::string head = ":W&B";
  put_raw(head, std::uint16_t{0xbee1});
  put_raw(head, std::uint8_t{0});
  offset_ = head.size();
  append(head);
  std::string version, header, record;
  put_text(version, 1, "lockstep");
  put_text(header, 1, version);
  put_text(record, 21, header);
  put_record(record);
  record.clear();
  put_text(record, 17, run_record(options, begun_));
  put_record(record);
}

WandbWriter::~WandbWriter() {
  std::string exit, record;
  put_number(exit, 1, 0);
  put_number(exit, 2, static_cast<std::int64_t>(wall_seconds() - begun_));
  put_text(record, 18, exit);
  put_record(record);
}

void WandbWriter::write(std::int64_t step, std::span<const Scalar> scalars) {
  const double now = wall_seconds();
  std::string history, number, record;
  for (const Scalar& one : scalars) put_text(history, 1, item(one.name, number_json(one.value)));
  put_text(history, 1, item("_step", std::to_string(step)));
  put_text(history, 1, item("_timestamp", number_json(now)));
  put_text(history, 1, item("_runtime", number_json(now - begun_)));
  put_number(number, 1, step);
  put_text(history, 2, number);
  put_text(record, 2, history);
  put_record(record);
}

// Record: num = 1, then the one field that it is.
void WandbWriter::put_record(std::string_view record) {
  std::string numbered;
  put_number(numbered, 1, ++records_);
  numbered += record;
  std::string out;
  std::string_view rest = numbered;
  const auto left = [&] { return block_bytes - (offset_ + out.size()) % block_bytes; };
  if (left() < head_bytes) out.append(left(), '\0');
  for (bool begun = false; !begun || !rest.empty(); begun = true) {
    const std::string_view piece = rest.substr(0, left() - head_bytes);
    rest.remove_prefix(piece.size());
    put_block_piece(out, piece, begun ? (rest.empty() ? last : middle) : rest.empty() ? whole : first);
  }
  offset_ += out.size();
  append(out);
}

void WandbWriter::put_block_piece(std::string& out, std::string_view piece, int kind) {
  put_raw(out, checksum(kind, piece));
  put_raw(out, static_cast<std::uint16_t>(piece.size()));
  put_raw(out, static_cast<std::uint8_t>(kind));
  out += piece;
}

void WandbWriter::append(const std::string& bytes) {
  using Kind = base::PatientWriter::News::Kind;
  if (lost_) return;
  const auto news = bytes_.write(bytes);
  if (news.kind == Kind::began_to_wait) base::log_warning("the file for W&B cannot be written: {}", news.error);
  if (news.kind != Kind::caught_up || news.dropped == 0) return;
  lost_ = true;
  base::log_warning("the file for W&B ends here: the disk was full for so long that {} of its records are lost", news.dropped);
}

}  // namespace lockstep::journal
