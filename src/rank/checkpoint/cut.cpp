// Cutting a checkpoint into files, slices and ranges of bytes.
#include "rank/checkpoint/cut.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "rank/checkpoint/manifest.h"

namespace lockstep::checkpoint {
namespace {

std::uint64_t bytes_of(const TensorEntry& entry) {
  std::uint64_t bytes = c10::elementSize(entry.dtype);
  for (const std::int64_t size : entry.shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

std::vector<std::vector<TensorEntry>> group_by_unit(const std::vector<NamedTensor>& tensors, std::uint64_t file_bytes) {
  std::vector<std::vector<TensorEntry>> groups;
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool next_unit = i > 0 && tensors[i].unit != tensors[i - 1].unit;
    if (groups.empty() || (next_unit && held >= file_bytes)) {
      groups.emplace_back();
      held = 0;
    }
    groups.back().push_back({tensors[i].name, tensors[i].tensor.scalar_type(), tensors[i].whole_shape()});
    held += bytes_of(groups.back().back());
  }
  return groups;
}

struct Border {
  std::size_t file;
  std::uint64_t offset;
};

Border border(std::span<const std::uint64_t> file_bytes, std::uint64_t total, int index, int count) {
  const auto i = static_cast<std::uint64_t>(index), n = static_cast<std::uint64_t>(count);
  std::uint64_t at = total / n * i + total % n * i / n;
  for (std::size_t file = 0; file < file_bytes.size(); ++file) {
    if (at < file_bytes[file]) return {file, at / page_bytes * page_bytes};
    at -= file_bytes[file];
  }
  return {file_bytes.size(), 0};
}

}  // namespace

std::vector<CutFile> cut_files(std::int64_t step, const Contents& contents, const Cut& cut) {
  const std::vector<NamedTensor>* lists[] = {&contents.model, &contents.optimizer};
  std::vector<CutFile> files;
  for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
    auto groups = group_by_unit(*lists[kind], cut.file_bytes);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      CutFile file{.kind = kinds[kind], .name = tensors_name(kinds[kind], i, groups.size()), .entries = std::move(groups[i]), .header = {}};
      file.data_bytes = lay_out(file.entries);
      file.header = safetensors_header(file.entries, {{"format", "pt"}, {"step", fmt::format("{}", step)}});
      files.push_back(std::move(file));
    }
  }
  return files;
}

std::vector<CutSlice> cut_slices(const CutFile& file, const Cut& cut) {
  std::vector<CutSlice> slices;
  for (const TensorEntry& entry : file.entries) {
    const std::uint64_t element = c10::elementSize(entry.dtype), most = std::max<std::uint64_t>(1, cut.slice_bytes / element) * element;
    std::uint64_t at = 0;
    do {
      const std::uint64_t bytes = std::min(most, entry.bytes() - at);
      slices.push_back({.entry = &entry,
                        .begin = static_cast<std::int64_t>(at / element),
                        .count = static_cast<std::int64_t>(bytes / element),
                        .offset = file.header.size() + entry.begin + at,
                        .bytes = bytes});
      at += bytes;
    } while (at < entry.bytes());
  }
  return slices;
}

std::vector<FileRange> equal_share(std::span<const std::uint64_t> file_bytes, const Share& share) {
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : file_bytes) total += bytes;
  const Border first = border(file_bytes, total, share.index, share.count), last = border(file_bytes, total, share.index + 1, share.count);
  std::vector<FileRange> ranges;
  for (std::size_t file = first.file; file < file_bytes.size() && file <= last.file; ++file) {
    const FileRange range{file, file == first.file ? first.offset : 0, file == last.file ? last.offset : file_bytes[file]};
    if (range.begin < range.end) ranges.push_back(range);
  }
  return ranges;
}

std::vector<FileRange> held_ranges(std::span<const CutFile> files, const Contents& contents, const Share& share) {
  std::map<std::pair<std::string_view, std::string_view>, const NamedTensor*> held;
  for (const NamedTensor& tensor : contents.model) held[{kinds[0], tensor.name}] = &tensor;
  for (const NamedTensor& tensor : contents.optimizer) held[{kinds[1], tensor.name}] = &tensor;
  std::vector<FileRange> ranges;
  const auto add = [&](const FileRange& range) {
    if (range.begin == range.end) return;
    if (!ranges.empty() && ranges.back().file == range.file && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  };
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::uint64_t header = files[f].header.size();
    if (files[f].data_bytes == 0 && share.index == 0) add({f, 0, header});
    for (const TensorEntry& entry : files[f].entries) {
      const NamedTensor& tensor = *held.at({files[f].kind, entry.name});
      const std::uint64_t element = c10::elementSize(entry.dtype);
      const std::uint64_t begin = entry.begin + static_cast<std::uint64_t>(tensor.begin) * element, end = begin + tensor.tensor.nbytes();
      base::check(end <= entry.end, fmt::format("a writer's slice of {} lies within it", entry.name));
      if (begin == 0 && begin < end) add({f, 0, header});
      add({f, header + begin, header + end});
    }
  }
  return ranges;
}

std::vector<Stretch> cut_at_edges(const FileRange& range, std::uint64_t file_bytes) {
  const std::uint64_t first = (range.begin + page_bytes - 1) / page_bytes * page_bytes;
  const std::uint64_t last = range.end == file_bytes ? range.end : range.end / page_bytes * page_bytes;
  if (first >= last) return {{range, true}};
  std::vector<Stretch> stretches;
  const auto add = [&](std::uint64_t begin, std::uint64_t end, bool edge) {
    if (begin < end) stretches.push_back({{range.file, begin, end}, edge});
  };
  add(range.begin, first, true);
  add(first, last, false);
  add(last, range.end, true);
  return stretches;
}

std::vector<FileRange> cut_range(const FileRange& range, const CutFile& file, const Cut& cut) {
  std::vector<FileRange> pieces;
  std::uint64_t at = range.begin;
  const auto until = [&](std::uint64_t border) {
    const std::uint64_t end = std::min(border, range.end);
    if (at < end) pieces.push_back({range.file, at, end});
    at = std::max(at, end);
  };
  until(file.header.size());
  for (const CutSlice& slice : cut_slices(file, cut)) until(slice.offset + slice.bytes);
  return pieces;
}

std::vector<std::vector<FileRange>> in_turns(std::span<const FileRange> ranges, std::uint64_t most_bytes) {
  const std::uint64_t most = std::max(most_bytes / page_bytes * page_bytes, page_bytes);
  std::vector<std::vector<FileRange>> turns;
  std::uint64_t room = 0;
  for (FileRange rest : ranges) {
    while (rest.begin < rest.end) {
      if (room == 0) {
        turns.emplace_back();
        room = most;
      }
      FileRange now = rest;
      now.end = std::min(rest.end, rest.begin / page_bytes * page_bytes + room);
      room -= now.staged_bytes();
      turns.back().push_back(now);
      rest.begin = now.end;
    }
  }
  return turns;
}

}  // namespace lockstep::checkpoint
