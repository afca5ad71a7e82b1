// A queue before a file.
#include "base/file/patient_writer.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace lockstep::base {

PatientWriter::PatientWriter(std::function<std::unique_ptr<FileAppender>()> open, Options options)
    : open_(std::move(open)), options_(options) {}

PatientWriter::News PatientWriter::write(std::string_view piece) {
  const Lock lock(mutex_);
  pieces_.emplace_back(piece);
  bytes_ += piece.size();
  if (refused_ns_ != 0) ++waited_;
  // A piece that has begun must be ended, or what follows would join its half.
  const std::size_t first = first_done_ > 0 ? 1 : 0;
  while (bytes_ > options_.capacity_bytes && pieces_.size() > first + 1) {
    bytes_ -= pieces_[first].size();
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(first));
    ++dropped_;
  }
  return drain(/*at_once=*/false);
}

PatientWriter::News PatientWriter::flush() {
  const Lock lock(mutex_);
  return drain(/*at_once=*/true);
}

std::int64_t PatientWriter::waiting() const {
  const Lock lock(mutex_);
  return static_cast<std::int64_t>(pieces_.size());
}

PatientWriter::News PatientWriter::drain(bool at_once) {
  if (refused_ns_ != 0 && !at_once && seconds_since(refused_ns_) < options_.retry_s) return {};
  std::string error;
  try {
    if (!file_) file_ = open_();
    while (!pieces_.empty() && error.empty()) {
      const FileAppender::Result result = file_->append(std::string_view(pieces_.front()).substr(first_done_));
      first_done_ += result.written;
      error = result.error;
      if (!error.empty()) break;
      bytes_ -= pieces_.front().size();
      pieces_.pop_front();
      first_done_ = 0;
    }
  } catch (const UserError& failure) {
    error = failure.what();
  }
  if (!error.empty()) {
    const bool news = refused_ns_ == 0;
    refused_ns_ = std::max<std::int64_t>(1, now_ns());
    if (!news) return {};
    waited_ += static_cast<std::int64_t>(pieces_.size());
    return {.kind = News::Kind::began_to_wait, .error = error};
  }
  if (refused_ns_ == 0) return {};
  refused_ns_ = 0;
  const std::int64_t dropped = std::exchange(dropped_, 0);
  return {.kind = News::Kind::caught_up, .waited = std::exchange(waited_, 0) - dropped, .dropped = dropped};
}

}  // namespace lockstep::base
