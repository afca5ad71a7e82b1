// Writing one checkpoint through the seam: a writer's part, and writer 0's joining of all parts. No threads here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/cut.h"
#include "rank/checkpoint/edge_file.h"
#include "rank/checkpoint/manifest.h"
#include "rank/checkpoint/staging.h"

namespace lockstep::checkpoint {

struct Save {
  std::int64_t step = 0;
  std::int64_t attempt = 0;                   // counts begin(): equal on all writers
  std::vector<CutFile> files;                 // of the whole checkpoint
  std::vector<FileRange> ranges;              // what this writer writes of them, file by file
  std::vector<std::vector<FileRange>> turns;  // the same as it is copied: by as much as host memory may hold at once
  std::string state_json;
  std::optional<std::int64_t> best = {};  // step of the checkpoint that is not removed
};
Save cut_save(std::int64_t step, std::int64_t attempt, const Contents& contents, const Saver::Options& options);

// Gives the turns of a save one after the other; what it gave before may be overwritten.
using NextTurn = std::function<std::vector<StagedRange>()>;

// Removes what crashed saves and deletions left in `folder`, except the folder of step `but`. Where a crash hit between taking an
// old checkpoint of a step away and putting the new one in its place, the old one is put back.
void clean_leftovers(base::FileSystem& files, const std::filesystem::path& folder, std::int64_t but = -1);

class SaveWriter {
 public:
  // `patience` is asked while writer 0 waits for others, with the seconds since anything in the folder changed: false gives up.
  SaveWriter(base::FileSystem& files, const Saver::Options& options, std::function<bool(double quiet_s)> patience);

  // This writer's bytes of the files, its edges and part-N.json, synced.
  void write_part(const Save& save, const NextTurn& next);
  // Writer 0: waits for all parts, writes their edges, manifest and state, puts the folder in its place, removes the oldest beyond `keep`.
  void finish(const Save& save);
  // After a failure: writer 0 removes the folder, others say in their part what went wrong. Never throws.
  void give_up(const Save& save, const std::string& reason) noexcept;

 private:
  void write_range(base::FileWriter& writer, EdgeFile& edges, const CutFile& file, const StagedRange& staged, Part& part) const;
  void reserve_part(const std::filesystem::path& folder);
  FileEntry write_text(const std::filesystem::path& path, const std::string& text);
  std::vector<Part> wait_for_parts(const Save& save);
  void wait_until_visible(const std::filesystem::path& path, std::uint64_t bytes);
  bool look_again(std::int64_t begun_ns) const;
  // pieces: of one file, by writer. Returns their bytes.
  std::uint64_t write_edges(const std::filesystem::path& folder, const CutFile& file, const std::map<int, std::vector<PieceEntry>>& pieces);
  std::vector<std::byte> read_edges(const std::filesystem::path& path, std::span<const PieceEntry> pieces);
  void put_in_place(const Save& save);
  void link_best(std::int64_t step);
  void remove_oldest(std::int64_t saved_step);
  void remove_quietly(const StepFolder& old);

  base::FileSystem& files_;
  const Saver::Options& options_;
  std::function<bool(double)> patience_;
  bool folder_made_ = false;
};

}  // namespace lockstep::checkpoint
