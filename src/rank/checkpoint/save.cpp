// The protocol of a save: everything beside, synced, checksummed; then one rename makes it a checkpoint.
#include "rank/checkpoint/save.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/replace_folder.h"
#include "base/hash/crc32c.h"
#include "base/log.h"
#include "base/hash/mix.h"
#include "base/text.h"
#include "journal/timeline.h"

namespace lockstep::checkpoint {
namespace {

using State = StepFolder::State;

constexpr std::size_t write_bytes = 16u << 20;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

void write_in_chunks(base::FileWriter& writer, std::uint64_t offset, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(write_bytes - (offset + at) % write_bytes, bytes.size() - at);
    writer.write_at(offset + at, bytes.subspan(at, size));
    at += size;
  }
}

// Renamed first, so that a half removed checkpoint is never taken for a whole one.
void remove_folder(base::FileSystem& files, const std::filesystem::path& folder, const StepFolder& victim) {
  const auto doomed = step_folder(folder, victim.step, State::deleting);
  if (victim.state != State::deleting) {
    if (std::filesystem::exists(doomed)) files.remove_all(doomed);
    files.rename(victim.path, doomed);
  }
  files.remove_all(doomed);
}

// Something that changes while any writer makes progress. A shared file has its size from the start: its time tells.
std::uint64_t progress_mark(const std::filesystem::path& folder) {
  std::uint64_t mark = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    mark += 1 + entry->file_size(error) + base::mix(static_cast<std::uint64_t>(entry->last_write_time(error).time_since_epoch().count()));
  }
  return mark;
}

// What Hugging Face's loaders read to find a tensor among several files.
std::string index_text(std::span<const CutFile> files) {
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  std::uint64_t bytes = 0;
  for (const CutFile& file : files) {
    if (file.kind != "model") continue;
    bytes += file.data_bytes;
    for (const TensorEntry& entry : file.entries) names[entry.name] = file.name;
  }
  return nlohmann::ordered_json{{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(names)}}.dump(1) + "\n";
}

// What all writers say of one file, joined in its order: every byte was written once, and every slice has the checksum of its pieces.
class Joiner {
 public:
  Joiner(const CutFile& file, std::vector<PieceEntry> pieces) : file_(file), pieces_(std::move(pieces)) {
    std::sort(pieces_.begin(), pieces_.end(), [](const PieceEntry& a, const PieceEntry& b) { return a.begin < b.begin; });
  }
  void into(Manifest& manifest, const Cut& cut) {
    take(file_.header.size());
    for (const CutSlice& slice : cut_slices(file_, cut)) {
      manifest.tensors.push_back({.kind = std::string(file_.kind),
                                  .name = slice.entry->name,
                                  .file = file_.name,
                                  .dtype = std::string(dtype_name(slice.entry->dtype)),
                                  .shape = slice.entry->shape,
                                  .begin = slice.begin,
                                  .count = slice.count,
                                  .offset = slice.offset,
                                  .checksum = take(slice.offset + slice.bytes)});
    }
    if (next_ != pieces_.size()) throw misfit();
    manifest.files.push_back({file_.name, file_.bytes(), whole_});
  }

 private:
  std::uint32_t take(std::uint64_t end) {
    std::uint32_t checksum = 0;
    while (at_ < end) {
      if (next_ == pieces_.size() || pieces_[next_].begin != at_ || pieces_[next_].end <= at_ || pieces_[next_].end > end) throw misfit();
      const PieceEntry& piece = pieces_[next_++];
      checksum = base::crc32c_combine(checksum, piece.checksum, piece.end - piece.begin);
      whole_ = base::crc32c_combine(whole_, piece.checksum, piece.end - piece.begin);
      at_ = piece.end;
    }
    return checksum;
  }
  base::UserError misfit() const {
    return base::checkpoint_error("checkpoint", "what the ranks wrote of {} does not fit together at byte {}", file_.name, at_);
  }

  const CutFile& file_;
  std::vector<PieceEntry> pieces_;
  std::size_t next_ = 0;
  std::uint64_t at_ = 0;
  std::uint32_t whole_ = 0;
};

}  // namespace

void clean_leftovers(base::FileSystem& files, const std::filesystem::path& folder, std::int64_t but) {
  for (const StepFolder& found : list_step_folders(folder)) {
    if (found.state == State::whole || found.step == but) continue;
    try {
      const auto whole = step_folder(folder, found.step);
      if (found.state == State::replaced && !std::filesystem::exists(whole)) {
        files.rename(found.path, whole);
        base::log_info("put {} back: a crash hit while it was being replaced", whole.string());
        continue;
      }
      remove_folder(files, folder, found);
      base::log_info("removed {}, left by a save or a removal that did not finish", found.path.string());
    } catch (const base::UserError& error) {
      base::log_warning("could not clean up {}: {}", found.path.string(), error.what());
    }
  }
}

Save cut_save(std::int64_t step, std::int64_t attempt, const Contents& contents, const Saver::Options& options) {
  Save save{.step = step,
            .attempt = attempt,
            .files = cut_files(step, contents, options.cut),
            .ranges = {},
            .turns = {},
            .state_json = contents.state_json};
  std::vector<std::uint64_t> bytes;
  for (const CutFile& file : save.files) bytes.push_back(file.bytes());
  save.ranges = contents.sharded ? held_ranges(save.files, contents, options.share) : equal_share(bytes, options.share);
  std::uint64_t all = 0;
  for (const FileRange& range : save.ranges) all += range.staged_bytes();
  // Where one turn will not do, the next one is copied while this one is written: each has half of the memory.
  const bool fits = options.staging_bytes == 0 || all <= options.staging_bytes;
  save.turns = in_turns(save.ranges, fits ? all : options.staging_bytes / 2);
  return save;
}

SaveWriter::SaveWriter(base::FileSystem& files, const Saver::Options& options, std::function<bool(double quiet_s)> patience)
    : files_(files), options_(options), patience_(std::move(patience)) {}

FileEntry SaveWriter::write_text(const std::filesystem::path& path, const std::string& text) {
  auto file = files_.create(path);
  file->write(bytes_of(text));
  file->sync_and_close();
  return {path.filename().string(), text.size(), base::crc32c(bytes_of(text))};
}

void SaveWriter::write_range(base::FileWriter& writer, EdgeFile& edges, const CutFile& file, const StagedRange& staged, Part& part) const {
  const std::vector<Stretch> stretches =
      options_.several_machines ? cut_at_edges(staged.range, file.bytes()) : std::vector{Stretch{.range = staged.range}};
  for (const auto& [range, edge] : stretches) {
    const std::span<const std::byte> bytes = staged.bytes.subspan(range.begin - staged.range.begin, range.bytes());
    const std::uint64_t aside = edge ? edges.add(bytes) : 0;
    if (!edge) write_in_chunks(writer, range.begin, bytes);
    for (const FileRange& piece : cut_range(range, file, options_.cut)) {
      const std::uint64_t at = piece.begin - range.begin;
      part.pieces.push_back({file.name, piece.begin, piece.end, base::crc32c(bytes.subspan(at, piece.bytes()))});
      if (edge) part.pieces.back().edge = aside + at;
    }
  }
}

// A writer that finds the disk full must have room to say so: its part takes the place of this.
void SaveWriter::reserve_part(const std::filesystem::path& folder) {
  files_.create(folder / (part_name(options_.share.index) + ".tmp"))->write(bytes_of(std::string(4096, ' ')));
}

void SaveWriter::write_part(const Save& save, const NextTurn& next) {
  const auto folder = step_folder(options_.folder, save.step, State::partial);
  files_.create_directories(folder);
  folder_made_ = true;
  reserve_part(folder);
  Part part{.step = save.step, .attempt = save.attempt, .error = {}, .pieces = {}};
  EdgeFile edges(files_, folder / edges_name(options_.share.index));
  std::unique_ptr<base::FileWriter> writer;
  const CutFile* open = nullptr;
  for (std::size_t turn = 0; turn < save.turns.size(); ++turn) {
    for (const StagedRange& staged : next()) {
      const CutFile& file = save.files[staged.range.file];
      if (std::exchange(open, &file) != &file) {
        if (writer) writer->sync_and_close();
        writer = files_.open_to_share(folder / file.name, file.bytes());
      }
      write_range(*writer, edges, file, staged, part);
    }
  }
  if (writer) writer->sync_and_close();
  edges.sync_and_close();
  files_.sync_directory(folder);
  // Last, and nothing after it may fail: writer 0 relies on these files from the moment it sees the part.
  base::write_text_atomically(files_, folder / part_name(options_.share.index), part_text(part));
}

std::vector<Part> SaveWriter::wait_for_parts(const Save& save) {
  const auto folder = step_folder(options_.folder, save.step, State::partial);
  std::vector<Part> parts;
  std::uint64_t mark = 0;
  std::int64_t changed_ns = base::now_ns();
  for (int writer = 0; writer < options_.share.count;) {
    const auto path = folder / part_name(writer);
    if (std::filesystem::exists(path)) {
      Part part = parse_part(base::read_text(path), path);
      if (part.step == save.step && part.attempt == save.attempt) {
        if (!part.error.empty()) throw base::checkpoint_error("checkpoint", "rank {} could not write its share: {}", writer, part.error);
        parts.push_back(std::move(part));
        ++writer;
        continue;
      }
    }
    const std::uint64_t now = progress_mark(folder);
    if (std::exchange(mark, now) != now) changed_ns = base::now_ns();
    if (!patience_(base::seconds_since(changed_ns))) {
      throw base::checkpoint_error("checkpoint", "rank {} did not write its share", writer);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return parts;
}

// A part file is written after its tensors are synced, so they are there; but this machine may have looked at them while they grew.
// False: what is to be seen now is what there is.
bool SaveWriter::look_again(std::int64_t begun_ns) const {
  const double waited_s = base::seconds_since(begun_ns);
  if (waited_s > options_.visible_s || !patience_(waited_s)) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return true;
}

void SaveWriter::wait_until_visible(const std::filesystem::path& path, std::uint64_t bytes) {
  const std::int64_t begun_ns = base::now_ns();
  for (auto size = files_.size(path); size != bytes; size = files_.size(path)) {
    if (look_again(begun_ns)) continue;
    throw base::checkpoint_error("checkpoint", "{} should have {} bytes and {}", path.string(), bytes,
                                 size ? fmt::format("has {}", *size) : "is not there");
  }
}

std::vector<std::byte> SaveWriter::read_edges(const std::filesystem::path& path, std::span<const PieceEntry> pieces) {
  const std::uint64_t first = *pieces.front().edge;
  std::uint64_t size = 0;  // a writer goes through a file from front to back, so they lie in a row
  for (const PieceEntry& piece : pieces) {
    if (*piece.edge != first + size) throw base::checkpoint_error("checkpoint", "what is in {} does not fit together", path.string());
    size += piece.end - piece.begin;
  }
  std::vector<std::byte> bytes(size);
  const auto whole = [&](const PieceEntry& piece) {
    return base::crc32c(std::span(bytes).subspan(*piece.edge - first, piece.end - piece.begin)) == piece.checksum;
  };
  const std::int64_t begun_ns = base::now_ns();
  while (files_.read_at(path, first, bytes) != size || !std::all_of(pieces.begin(), pieces.end(), whole)) {
    if (!look_again(begun_ns)) throw base::checkpoint_error("checkpoint", "{} does not hold what its writer put there", path.string());
  }
  return bytes;
}

// All of a page that nobody fills is put aside, so nobody else has written to it, and nobody will.
std::uint64_t SaveWriter::write_edges(const std::filesystem::path& folder, const CutFile& file,
                                      const std::map<int, std::vector<PieceEntry>>& pieces) {
  if (pieces.empty()) return 0;
  std::uint64_t written = 0;
  const auto writer = files_.open_to_share(folder / file.name, file.bytes());
  for (const auto& [from, theirs] : pieces) {
    const std::vector<std::byte> bytes = read_edges(folder / edges_name(from), theirs);
    for (const PieceEntry& piece : theirs)
      writer->write_at(piece.begin, std::span(bytes).subspan(*piece.edge - *theirs.front().edge, piece.end - piece.begin));
    written += bytes.size();
  }
  writer->sync_and_close();
  return written;
}

void SaveWriter::finish(const Save& save) {
  const auto folder = step_folder(options_.folder, save.step, State::partial);
  Manifest manifest{.step = save.step, .writers = options_.share.count, .time = base::utc_time(), .files = {}, .tensors = {}};
  std::map<std::string, std::vector<PieceEntry>> pieces;                // by file
  std::map<std::string, std::map<int, std::vector<PieceEntry>>> edges;  // by file and writer
  const std::vector<Part> parts = wait_for_parts(save);
  for (int writer = 0; writer < options_.share.count; ++writer) {
    for (const PieceEntry& piece : parts[static_cast<std::size_t>(writer)].pieces) {
      if (piece.edge) edges[piece.file][writer].push_back(piece);
      pieces[piece.file].push_back(piece);
    }
  }
  std::uint64_t joined = 0;
  for (const CutFile& file : save.files) {
    Joiner(file, std::move(pieces[file.name])).into(manifest, options_.cut);
    wait_until_visible(folder / file.name, file.bytes());
    joined += write_edges(folder, file, edges[file.name]);
  }
  if (joined > 0)
    base::log_info("step {}: {} of pages that several ranks have some of were written by this one", save.step, base::human_bytes(joined));
  manifest.files.push_back(write_text(folder / "state.json", save.state_json));
  manifest.files.push_back(write_text(folder / "model.safetensors.index.json", index_text(save.files)));
  write_text(folder / "manifest.json", manifest_text(manifest));
  for (int writer = 0; writer < options_.share.count; ++writer) {
    files_.remove_all(folder / part_name(writer));
    if (options_.several_machines) files_.remove_all(folder / edges_name(writer));
  }
  files_.sync_directory(folder);
  if (options_.may_write) options_.may_write();
  put_in_place(save);
  if (save.best) link_best(*save.best);
  remove_oldest(save.step);
}

// A checkpoint that could not be saved is not linked: the best one before it stays.
void SaveWriter::link_best(std::int64_t step) {
  const auto whole = step_folder(options_.folder, step);
  if (std::filesystem::exists(whole)) journal::link_best(options_.folder, whole.filename().string());
}

void SaveWriter::put_in_place(const Save& save) {
  const auto partial = step_folder(options_.folder, save.step, State::partial);
  const auto whole = step_folder(options_.folder, save.step);
  const auto replaced = step_folder(options_.folder, save.step, State::replaced);
  if (base::replace_folder(files_, partial, whole, replaced)) remove_quietly({replaced, save.step, State::replaced});
}

void SaveWriter::remove_oldest(std::int64_t saved_step) {
  if (options_.keep <= 0) return;
  std::int64_t kept = 1;  // the one just saved, whatever its number
  std::error_code none;
  const auto best = std::filesystem::read_symlink(options_.folder / "best", none);
  for (const StepFolder& found : list_step_folders(options_.folder)) {
    if (found.state != State::whole || found.step == saved_step || kept++ < options_.keep || found.path.filename() == best) continue;
    remove_quietly(found);
  }
}

// The new checkpoint is whole: an old one that stays is no reason to call the save failed.
void SaveWriter::remove_quietly(const StepFolder& old) {
  try {
    remove_folder(files_, options_.folder, old);
  } catch (const base::UserError& error) {
    base::log_warning("could not remove the old checkpoint {}: {}", old.path.string(), error.what());
  }
}

void SaveWriter::give_up(const Save& save, const std::string& reason) noexcept {
  try {
    const auto folder = step_folder(options_.folder, save.step, State::partial);
    if (options_.share.index == 0) {
      if (std::filesystem::exists(folder)) remove_folder(files_, options_.folder, {folder, save.step, State::partial});
    } else {
      if (folder_made_ && !std::filesystem::exists(folder)) return;  // writer 0 has given up before us
      files_.create_directories(folder);
      const Part part{.step = save.step, .attempt = save.attempt, .error = reason, .pieces = {}};
      for (const FileRange& range : save.ranges) {  // room for others; not what they write, perhaps for the next attempt already
        const CutFile& file = save.files[range.file];
        if (range.bytes() == file.bytes()) files_.remove_all(folder / file.name);
      }
      if (options_.several_machines) files_.remove_all(folder / edges_name(options_.share.index));
      base::write_text_atomically(files_, folder / part_name(options_.share.index), part_text(part));
    }
  } catch (const std::exception& error) {
    base::log_warning("could not clean up after a failed save: {}", error.what());
  }
}

}  // namespace lockstep::checkpoint
