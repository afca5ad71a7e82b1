// A disk that fills up and has room again: nothing is lost below the bound, the order stays, each change is told once.
#include "base/file/patient_writer.h"

#include <gtest/gtest.h>

#include "support/files/faulty_files.h"
#include "support/temporary_folder.h"

namespace lockstep::base {
namespace {

using Kind = PatientWriter::News::Kind;
using support::FaultyFiles;

struct Disk {
  support::TemporaryFolder folder;
  FaultyFiles files;
  std::filesystem::path path = folder.path() / "log";
  PatientWriter writer(std::size_t capacity) {
    return PatientWriter([this] { return files.open_to_append(path); }, {.capacity_bytes = capacity, .retry_s = 0});
  }
  std::string text() const { return std::filesystem::exists(path) ? read_text(path) : ""; }
};

TEST(PatientWriter, LinesWaitInOrderAndAreWrittenWhenThereIsRoom) {
  Disk disk;
  PatientWriter writer = disk.writer(1 << 20);
  EXPECT_EQ(writer.write("one\n").kind, Kind::none);
  disk.files.disk_bytes = 6;  // "tw" still fits
  const auto news = writer.write("two\n");
  EXPECT_EQ(news.kind, Kind::began_to_wait);
  EXPECT_EQ(news.error, "No space left on device");
  EXPECT_EQ(writer.write("three\n").kind, Kind::none) << "told once";
  EXPECT_EQ(writer.flush().kind, Kind::none);
  EXPECT_EQ(writer.waiting(), 2);
  EXPECT_EQ(disk.text(), "one\ntw");
  disk.files.disk_bytes = FaultyFiles::never;
  const auto caught_up = writer.write("four\n");
  EXPECT_EQ(caught_up.kind, Kind::caught_up);
  EXPECT_EQ(caught_up.waited, 3);
  EXPECT_EQ(caught_up.dropped, 0);
  EXPECT_EQ(writer.write("five\n").kind, Kind::none);
  EXPECT_EQ(disk.text(), "one\ntwo\nthree\nfour\nfive\n");
}

TEST(PatientWriter, BeyondTheBoundTheOldestGoWhole) {
  Disk disk;
  PatientWriter writer = disk.writer(8);
  disk.files.disk_bytes = 1;
  for (const char* line : {"aaa\n", "bbb\n", "ccc\n", "ddd\n"}) writer.write(line);
  EXPECT_EQ(disk.text(), "a");
  disk.files.disk_bytes = FaultyFiles::never;
  const auto news = writer.flush();
  EXPECT_EQ(news.kind, Kind::caught_up);
  EXPECT_EQ(news.dropped, 2);
  EXPECT_EQ(news.waited, 2);
  EXPECT_EQ(disk.text(), "aaa\nddd\n") << "the line that had begun is ended";
}

TEST(PatientWriter, AFileThatCannotBeOpenedIsTriedAgain) {
  Disk disk;
  PatientWriter writer = disk.writer(100);
  disk.files.fail_at = 0;
  EXPECT_EQ(writer.write("one\n").kind, Kind::began_to_wait);
  EXPECT_EQ(writer.write("two\n").kind, Kind::caught_up);
  EXPECT_EQ(disk.text(), "one\ntwo\n");
}

TEST(PatientWriter, ADiskThatRefusedIsLeftAloneForAWhile) {
  Disk disk;
  PatientWriter writer([&] { return disk.files.open_to_append(disk.path); }, {.retry_s = 3600});
  disk.files.fail_at = 0;
  writer.write("one\n");
  writer.write("two\n");
  EXPECT_EQ(disk.files.operations(), 1);
  EXPECT_EQ(writer.flush().kind, Kind::caught_up) << "but not at the end";
}

}  // namespace
}  // namespace lockstep::base
