// How a checkpoint is cut: into files by unit, whoever saves; into slices with a checksum each; into the bytes that each writer writes.
// Functions of their arguments alone, so that all writers agree without talking.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

// One file of tensors as it will be on disk.
struct CutFile {
  std::string_view kind;  // "model" or "optimizer"
  std::string name;       // "model-00001-of-00002.safetensors"
  std::vector<TensorEntry> entries;
  std::string header;
  std::uint64_t data_bytes = 0;

  std::uint64_t bytes() const { return header.size() + data_bytes; }
};
// A file takes whole units in order until it holds cut.file_bytes. Depends on names, types, shapes and units: not on who holds what.
std::vector<CutFile> cut_files(std::int64_t step, const Contents& contents, const Cut& cut);

// What one checksum of the manifest is for: numbers [begin, begin + count) of a flattened tensor, at `offset` in its file.
struct CutSlice {
  const TensorEntry* entry = nullptr;
  std::int64_t begin = 0, count = 0;
  std::uint64_t offset = 0, bytes = 0;
};
// By place in the file; every tensor has at least one.
std::vector<CutSlice> cut_slices(const CutFile& file, const Cut& cut);

inline constexpr std::uint64_t page_bytes = 4096;  // what disks and network file systems write at once

struct FileRange {
  std::size_t file = 0;              // which of the files
  std::uint64_t begin = 0, end = 0;  // bytes of it, its header counted

  std::uint64_t bytes() const { return end - begin; }
  // Of memory that holds it as far from a page's beginning as it lies in the file.
  std::uint64_t staged_bytes() const { return ((end + page_bytes - 1) / page_bytes - begin / page_bytes) * page_bytes; }
  bool operator==(const FileRange&) const = default;
};
// Where all writers hold everything: as many bytes for each, one stretch of the files in a row, cut at pages.
std::vector<FileRange> equal_share(std::span<const std::uint64_t> file_bytes, const Share& share);
// Where each writer holds slices of its own: those. A file's header belongs to its first number; to writer 0 where there is none.
std::vector<FileRange> held_ranges(std::span<const CutFile> files, const Contents& contents, const Share& share);

// Bytes of a file in a row. `edge`: they do not fill their page, of which other writers may have the rest.
struct Stretch {
  FileRange range;
  bool edge = false;
};
// The same range as the pages that it fills, and as the edges before and behind them. A file's last page is as long as the file.
std::vector<Stretch> cut_at_edges(const FileRange& range, std::uint64_t file_bytes);

// The same range cut where slices and the header end: whatever a writer has of a slice has a checksum of its own.
std::vector<FileRange> cut_range(const FileRange& range, const CutFile& file, const Cut& cut);

// The same ranges in turns that take at most so many bytes of page-aligned memory each, and one page at least; cut at pages of the files.
std::vector<std::vector<FileRange>> in_turns(std::span<const FileRange> ranges, std::uint64_t most_bytes);

}  // namespace lockstep::checkpoint
