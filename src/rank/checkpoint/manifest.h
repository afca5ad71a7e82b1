// What a checkpoint's folder says about itself: names of folders and files, one writer's part, the manifest of the whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

inline constexpr int format_version = 2;
inline constexpr std::string_view kinds[] = {"model", "optimizer"};

struct FileEntry {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;  // CRC-32C
};

// Numbers [begin, begin + count) of a flattened tensor. Format 1 knows no slices: one for each tensor, whose count and offset are not told.
struct SliceEntry {
  std::string kind;  // "model" or "optimizer"
  std::string name;
  std::string file;
  std::string dtype;
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::int64_t begin = 0, count = 0;
  std::uint64_t offset = 0;  // of the first number in the file
  std::uint32_t checksum = 0;
};

// Bytes [begin, end) of a file, as one writer wrote them.
struct PieceEntry {
  std::string file;
  std::uint64_t begin = 0, end = 0;
  std::uint32_t checksum = 0;
  std::optional<std::uint64_t> edge = {};  // not in that file yet, but so far into the writer's file of edges
};

// What one writer wrote. Writer 0 joins the parts; `attempt` tells them from what an earlier, failed save of the same step left.
struct Part {
  std::int64_t step = 0;
  std::int64_t attempt = 0;
  std::string error;  // the writer could not do its share
  std::vector<PieceEntry> pieces;
};
std::string part_text(const Part& part);
Part parse_part(std::string_view text, const std::filesystem::path& path);

struct Manifest {
  int version = format_version;
  std::int64_t step = 0;
  int writers = 0;
  std::string time;
  std::vector<FileEntry> files;
  std::vector<SliceEntry> tensors;  // of one tensor: in order, one after the other
};
// Carries a checksum of itself and has exactly one spelling, so that every changed byte is noticed.
std::string manifest_text(const Manifest& manifest);
// Throws UserError(ExitCode::checkpoint) where it is missing, damaged or of a newer format.
Manifest read_manifest(const std::filesystem::path& folder);

// Folders of one run's checkpoints. Only `whole` ones may be trusted; a `replaced` one was whole and is about to be removed.
struct StepFolder {
  enum class State { whole, replaced, partial, deleting };
  std::filesystem::path path;
  std::int64_t step = 0;
  State state = State::whole;
};
std::filesystem::path step_folder(const std::filesystem::path& folder, std::int64_t step,
                                  StepFolder::State state = StepFolder::State::whole);
std::vector<StepFolder> list_step_folders(const std::filesystem::path& folder);  // of the living timeline, newest first

std::string part_name(int writer);                                                      // "part-0.json"
std::string edges_name(int writer);                                                     // "part-0.edges"
std::string tensors_name(std::string_view kind, std::size_t index, std::size_t count);  // "model-00001-of-00002.safetensors"

}  // namespace lockstep::checkpoint
