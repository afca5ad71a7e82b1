// One table says which settings may differ between machines; paths among them are replaced by what lies there.
#include "front/job/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file/last_name.h"
#include "base/files.h"
#include "base/text.h"
#include "config/table/values.h"
#include "base/hash/content_hash.h"
#include "source_hash.h"  // made by cmake/source_hash.cmake

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;

// How a machine does its share, not what is trained.
constexpr std::string_view may_differ[] = {
    "output",
    "model.name",  // a label: that of the folder where none is given
    "parallel.ranks",
    "parallel.threads",
    "parallel.node_rank",
    "parallel.master_addr",
    "parallel.master_port",
    "monitor.headless",
    "launch.num_gpus",
    "launch.spawn",
    "launch.dry_run",
    "trainer.distributed.gpu_ids",
    "trainer.checkpoint_dir",
    "data.cache_dir",
    "data.workers",
    "data.prefetch",
    "data.pin_memory",
};
// Files and folders; machines may know them by different paths.
constexpr std::string_view paths[] = {"data.path",          "data.validation_path", "data.tokenizer",
                                      "data.chat_template", "model.path",           "lora.adapters"};

constexpr std::size_t read_whole_bytes = 16u << 20;
constexpr std::size_t pieces = 64, piece_bytes = 64u << 10;
constexpr std::size_t most_files = 200;

template <std::size_t n>
bool among(const std::string_view (&list)[n], std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

std::string fingerprint(const fs::path& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) return "not readable";
  base::ContentHash hash;
  if (size > 0) {
    const base::MappedFile file(path);
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (bytes.size() <= read_whole_bytes) {
      hash.add(bytes);
    } else {
      for (std::size_t i = 0; i < pieces; ++i) hash.add(bytes.substr((bytes.size() - piece_bytes) / (pieces - 1) * i, piece_bytes));
      hash.add(bytes.substr(bytes.size() - piece_bytes));
    }
  }
  return fmt::format("{} bytes, hash {}", size, hash.hex().substr(0, 16));
}

// Names are those below the path, so that the path itself does not count.
void add_files(journal::Identity& identity, const std::string& key, const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    identity.push_back({fmt::format("{} ({})", key, path.filename().string()), fingerprint(path)});
    return;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const bool hidden = entry.path().filename().string().starts_with(".");
    if (!hidden && entry.is_regular_file(error)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : std::span(files).first(std::min(files.size(), most_files)))
    identity.push_back({fmt::format("{} ({})", key, file.filename().string()), fingerprint(file)});
  if (files.size() > most_files) identity.push_back({key + " (files)", std::to_string(files.size())});
}

void add_paths(journal::Identity& identity, const std::string& key, const std::string& value, std::vector<std::string> parts) {
  std::error_code error;
  const bool all_there = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) { return fs::exists(part, error); });
  if (parts.empty() || !all_there) return identity.push_back({key, value});
  if (parts.size() == 1 && !fs::is_directory(parts[0], error)) return identity.push_back({key, fingerprint(parts[0])});
  for (const std::string& part : parts) add_files(identity, key, part);
}

std::vector<std::string> parts_of(const config::RunConfig& config, std::string_view key) {
  if (key == "lora.adapters") return config.lora.adapters;
  const std::string& text = key == "data.path"              ? config.data.path
                            : key == "data.validation_path" ? config.data.validation_path
                            : key == "data.tokenizer"       ? config.data.tokenizer
                            : key == "data.chat_template"   ? config.data.chat_template
                                                            : config.model.path;
  std::error_code error;
  if (text.empty()) return {};
  if (fs::exists(text, error)) return {text};
  std::vector<std::string> parts = base::split(text, ',');
  for (std::string& part : parts) part = base::trim(part);
  return parts;
}

// A folder of checkpoints may be mounted elsewhere; the checkpoint's own name may not differ.
std::string resume_of(const std::string& resume) { return base::last_name(resume); }

}  // namespace

std::string build_id() { return LOCKSTEP_SOURCES; }

journal::Identity identity_of(const config::RunConfig& config, std::span<const std::string> prepared) {
  journal::Identity identity = {{"the run's name", config.name}, {"the build", build_id()}};
  for (const config::KeyValue& entry : config::key_values(config)) {
    if (entry.key == "name" || among(may_differ, entry.key)) continue;
    const bool tokenized = !prepared.empty() && (entry.key == "data.path" || entry.key == "data.validation_path");
    if (entry.key == "checkpoint.resume")
      identity.push_back({entry.key, resume_of(config.checkpoint.resume)});
    else if (tokenized)
      continue;
    else if (among(paths, entry.key))
      add_paths(identity, entry.key, entry.value, parts_of(config, entry.key));
    else
      identity.push_back({entry.key, entry.value});
  }
  for (std::size_t i = 0; i < prepared.size(); ++i)
    identity.push_back({i == 0 ? "data.path (tokenized)" : "data.validation_path (tokenized)", prepared[i]});
  return identity;
}

}  // namespace lockstep::job
