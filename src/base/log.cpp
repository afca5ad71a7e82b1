// Writes whole lines, one write call each, so that lines of several threads do not mix. Lines that a full disk refuses wait for room.
#include "base/log.h"

#include <unistd.h>

#include <ctime>
#include <utility>

#include "base/file/patient_writer.h"
#include "base/mutex.h"

namespace lockstep::base {
namespace {

// Standard error is the process's, and so is what its lines begin with: a LogPrefix owns what stands here.
class Prefix {
 public:
  std::string exchange(std::string text) {
    const Lock lock(mutex_);
    return std::exchange(text_, std::move(text));
  }
  std::string text() {
    const Lock lock(mutex_);
    return text_;
  }

 private:
  Mutex mutex_;
  std::string text_ LOCKSTEP_GUARDED_BY(mutex_);
};

Prefix& prefix() {
  static Prefix prefix;
  return prefix;
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
  const std::string who = prefix().text();
  return fmt::format("{:02}:{:02}:{:02}.{:03} {}{}{}: {}\n", parts.tm_hour, parts.tm_min, parts.tm_sec, now.tv_nsec / 1'000'000, who,
                     who.empty() ? "" : " ", names[static_cast<int>(level)], text);
}

}  // namespace

LogPrefix::LogPrefix(std::string text) : before_(prefix().exchange(std::move(text))) {}
LogPrefix::~LogPrefix() { prefix().exchange(std::move(before_)); }

void log_line(LogLevel level, std::string_view text) {
  const PatientWriter::News news = standard_error().write(line_of(level, text));
  if (news.kind == PatientWriter::News::Kind::caught_up && news.dropped > 0)
    standard_error().write(line_of(LogLevel::warning, fmt::format("{} lines of this log were lost while the disk was full", news.dropped)));
}

}  // namespace lockstep::base
