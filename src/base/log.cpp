// Writes whole lines, one write call each, so that lines of several threads do not mix. Lines that a full disk refuses wait for room.
#include "base/log.h"

#include <unistd.h>

#include <ctime>

#include "base/file/patient_writer.h"

namespace lockstep::base {
namespace {

std::string& prefix() {
  static std::string text;
  return text;
}

PatientWriter& standard_error() {
  static PatientWriter writer([] { return append_to(STDERR_FILENO); }, {.capacity_bytes = 1u << 20, .retry_s = 0});
  return writer;
}

std::string line_of(LogLevel level, std::string_view text) {
  static constexpr const char* names[] = {"info", "warning", "error"};
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  return fmt::format("{:02}:{:02}:{:02}.{:03} {}{}{}: {}\n", parts.tm_hour, parts.tm_min, parts.tm_sec, now.tv_nsec / 1'000'000, prefix(),
                     prefix().empty() ? "" : " ", names[static_cast<int>(level)], text);
}

}  // namespace

void set_log_prefix(std::string text) { prefix() = std::move(text); }

void log_line(LogLevel level, std::string_view text) {
  const PatientWriter::News news = standard_error().write(line_of(level, text));
  if (news.kind == PatientWriter::News::Kind::caught_up && news.dropped > 0)
    standard_error().write(line_of(LogLevel::warning, fmt::format("{} lines of this log were lost while the disk was full", news.dropped)));
}

}  // namespace lockstep::base
