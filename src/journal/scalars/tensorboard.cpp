// TensorBoard's event files: length-prefixed, checksummed records, each a small protocol buffer written by hand.
#include "journal/scalars/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/hash/crc32c.h"
#include "base/log.h"
#include "journal/scalars/protobuf.h"

namespace lockstep::journal {
namespace {

using namespace protobuf;

// Event: wall_time = 1 (double), step = 2 (int64).
std::string event_head(std::int64_t step) {
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::string event;
  event.push_back(1 << 3 | 1);
  put_raw(event, static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9);
  event.push_back(2 << 3);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

// The format stores checksums of checksums, so it rotates and offsets them.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = base::crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
  return std::rotr(crc, 15) + 0xa282ead8u;
}

std::string record_of(const std::string& event) {
  std::string length;
  put_raw(length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  put_raw(record, masked_crc(length));
  record += event;
  put_raw(record, masked_crc(event));
  return record;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, std::int64_t resumed_at_step, base::FileSystem& files,
                                     base::PatientWriter::Options patience)
    : records_(
          [&files, folder, path = folder / fmt::format("events.out.tfevents.{}.lockstep.{}", std::time(nullptr), ::getpid())] {
            files.create_directories(folder);
            return files.open_to_append(path);
          },
          patience) {
  std::string version = event_head(0);
  put_text(version, 3, "brain.Event:2");
  // Event.session_log = 7 { status = 1: START }: steps from here on are this start's.
  std::string start = event_head(resumed_at_step + 1);
  put_text(start, 7, "\x08\x01");
  append(record_of(version) + record_of(start));
}

void TensorBoardWriter::write(std::int64_t step, std::span<const Scalar> scalars) {
  std::string records;
  for (const Scalar& one : scalars) {
    // Event.summary = 5 { Summary.value = 1 { tag = 1, simple_value = 2 (float) } }
    std::string scalar;
    put_text(scalar, 1, one.name);
    scalar.push_back(2 << 3 | 5);
    put_raw(scalar, static_cast<float>(one.value));
    std::string summary;
    put_text(summary, 1, scalar);
    std::string event = event_head(step);
    put_text(event, 5, summary);
    records += record_of(event);
  }
  append(records);
}

void TensorBoardWriter::append(std::string_view records) {
  const auto news = records_.write(records);
  if (news.kind == base::PatientWriter::News::Kind::began_to_wait)
    base::log_warning("TensorBoard's file cannot be written: {}", news.error);
}

}  // namespace lockstep::journal
