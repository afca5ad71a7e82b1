// Reading and writing what a checkpoint's folder says about itself.
#include "rank/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash/crc32c.h"
#include "base/json.h"
#include "journal/run_folder.h"
#include "journal/timeline.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view format_name = "lockstep checkpoint";
constexpr std::pair<StepFolder::State, std::string_view> endings[] = {
    {StepFolder::State::whole, ""},
    {StepFolder::State::replaced, ".replaced"},
    {StepFolder::State::partial, ".partial"},
    {StepFolder::State::deleting, ".deleting"},
};

std::uint32_t checksum_of(std::string_view text) { return base::crc32c(std::as_bytes(std::span(text.data(), text.size()))); }

std::string hex(std::uint32_t checksum) { return fmt::format("{:08x}", checksum); }
std::uint32_t from_hex(const std::string& text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) throw std::invalid_argument("no checksum: " + text);
  return value;
}

Json files_json(const std::vector<FileEntry>& files) {
  Json list = Json::array();
  for (const FileEntry& file : files) list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", hex(file.checksum)}});
  return list;
}
Json tensors_json(const std::vector<SliceEntry>& tensors) {
  Json list = Json::array();
  for (const SliceEntry& slice : tensors) {
    list.push_back({{"kind", slice.kind},
                    {"name", slice.name},
                    {"file", slice.file},
                    {"dtype", slice.dtype},
                    {"shape", slice.shape},
                    {"begin", slice.begin},
                    {"count", slice.count},
                    {"offset", slice.offset},
                    {"crc32c", hex(slice.checksum)}});
  }
  return list;
}
Json pieces_json(const std::vector<PieceEntry>& pieces) {
  Json list = Json::array();
  for (const PieceEntry& piece : pieces) {
    list.push_back({{"file", piece.file}, {"begin", piece.begin}, {"end", piece.end}, {"crc32c", hex(piece.checksum)}});
    if (piece.edge) list.back()["edge"] = *piece.edge;
  }
  return list;
}
std::vector<FileEntry> files_from(const Json& list) {
  std::vector<FileEntry> files;
  for (const Json& file : list) {
    files.push_back(
        {file.at("name").get<std::string>(), file.at("bytes").get<std::uint64_t>(), from_hex(file.at("crc32c").get<std::string>())});
  }
  return files;
}
std::vector<SliceEntry> tensors_from(const Json& list, int version) {
  std::vector<SliceEntry> tensors;
  for (const Json& tensor : list) {
    SliceEntry slice{.kind = tensor.at("kind").get<std::string>(),
                     .name = tensor.at("name").get<std::string>(),
                     .file = tensor.at("file").get<std::string>(),
                     .dtype = tensor.at("dtype").get<std::string>(),
                     .shape = tensor.at("shape").get<std::vector<std::int64_t>>(),
                     .checksum = from_hex(tensor.at("crc32c").get<std::string>())};
    if (version > 1) {
      slice.begin = tensor.at("begin").get<std::int64_t>();
      slice.count = tensor.at("count").get<std::int64_t>();
      slice.offset = tensor.at("offset").get<std::uint64_t>();
    }
    tensors.push_back(std::move(slice));
  }
  return tensors;
}
std::vector<PieceEntry> pieces_from(const Json& list) {
  std::vector<PieceEntry> pieces;
  for (const Json& piece : list) {
    pieces.push_back({piece.at("file").get<std::string>(), piece.at("begin").get<std::uint64_t>(), piece.at("end").get<std::uint64_t>(),
                      from_hex(piece.at("crc32c").get<std::string>())});
    if (piece.contains("edge")) pieces.back().edge = piece.at("edge").get<std::uint64_t>();
  }
  return pieces;
}

}  // namespace

std::string part_text(const Part& part) {
  const Json json = {{"step", part.step}, {"attempt", part.attempt}, {"error", part.error}, {"pieces", pieces_json(part.pieces)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Part parse_part(std::string_view text, const std::filesystem::path& path) {
  try {
    const Json json = base::parse_json(text);
    return {json.at("step").get<std::int64_t>(), json.at("attempt").get<std::int64_t>(), json.at("error").get<std::string>(),
            pieces_from(json.at("pieces"))};
  } catch (const std::exception& error) {
    throw base::checkpoint_error("checkpoint", "{} is damaged: {}", path.string(), error.what());
  }
}

std::string manifest_text(const Manifest& manifest) {
  Json json = {{"format", format_name},
               {"version", format_version},
               {"step", manifest.step},
               {"writers", manifest.writers},
               {"time", manifest.time},
               {"files", files_json(manifest.files)},
               {"tensors", tensors_json(manifest.tensors)}};
  json["crc32c"] = hex(checksum_of(json.dump(1)));
  return json.dump(1) + "\n";
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  if (!std::filesystem::exists(path)) {
    throw base::checkpoint_error("checkpoint", "{} is no whole checkpoint: it has no manifest.json", folder.string());
  }
  const std::string text = base::read_text(path);
  try {
    Json json = base::parse_json(text);
    const int version = json.at("version").get<int>();
    if (version > format_version) {
      throw base::checkpoint_error("checkpoint", "{} has format {}, this program reads up to {}. Use a newer lockstep.", folder.string(),
                                   version, format_version);
    }
    const bool same_spelling = json.dump(1) + "\n" == text;
    const std::uint32_t said = from_hex(json.at("crc32c").get<std::string>());
    json.erase("crc32c");
    if (!same_spelling || json.at("format") != format_name || checksum_of(json.dump(1)) != said) {
      throw base::checkpoint_error("checkpoint", "{} is damaged: its checksum differs", path.string());
    }
    return {version,
            json.at("step").get<std::int64_t>(),
            json.at("writers").get<int>(),
            json.at("time").get<std::string>(),
            files_from(json.at("files")),
            tensors_from(json.at("tensors"), version)};
  } catch (const base::UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw base::checkpoint_error("checkpoint", "{} is damaged: {}", path.string(), error.what());
  }
}

std::filesystem::path step_folder(const std::filesystem::path& folder, std::int64_t step, StepFolder::State state) {
  for (const auto& [known, ending] : endings) {
    if (known == state) return journal::checkpoint_folder(folder, step) += ending;
  }
  throw base::Bug("every state of a step's folder has an ending");
}

std::vector<StepFolder> list_step_folders(const std::filesystem::path& folder) {
  std::vector<StepFolder> found;
  std::error_code error;
  const std::set<std::string> gone = journal::leaving(folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto named = journal::step_named(name);
    if (!named || gone.contains(name) || !entry.is_directory(error)) continue;
    for (const auto& [state, ending] : endings) {
      if (named->ending == ending) found.push_back({entry.path(), named->step, state});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const StepFolder& a, const StepFolder& b) { return a.step != b.step ? a.step > b.step : a.state < b.state; });
  return found;
}

std::string part_name(int writer) { return fmt::format("part-{}.json", writer); }

std::string edges_name(int writer) { return fmt::format("part-{}.edges", writer); }

std::string tensors_name(std::string_view kind, std::size_t index, std::size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", kind, index + 1, count);
}

}  // namespace lockstep::checkpoint
