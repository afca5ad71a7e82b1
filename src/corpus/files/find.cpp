// Folders as Hugging Face lays them out, patterns, lists, and single files.
#include "corpus/files/find.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/text.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> endings = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".parquet"};

bool is_records_file(const fs::directory_entry& entry) {
  const std::string ending = base::lower(entry.path().extension().string());
  return entry.is_regular_file() && std::find(endings.begin(), endings.end(), ending) != endings.end();
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_records_file(entry)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Folders as Hugging Face lays them out hold parts (train-00000-of-00002.parquet, test-...): those that are called train are what is
// trained.
std::vector<fs::path> train_part(std::vector<fs::path> found) {
  const auto is_named = [](std::string_view part) {
    return [part](const fs::path& path) {
      const std::string name = base::lower(path.filename().string());
      return name.starts_with(part) && name.size() > part.size() && (name[part.size()] == '-' || name[part.size()] == '.');
    };
  };
  const bool has_train = std::any_of(found.begin(), found.end(), is_named("train"));
  if (!has_train) return found;
  for (const char* other : {"test", "validation", "valid", "dev", "eval"}) std::erase_if(found, is_named(other));
  return found;
}

std::vector<fs::path> folder_files(const fs::path& folder) {
  std::vector<fs::path> found = files_in(folder);
  // A data set's repository has its README.md beside the folder data, and perhaps dataset_infos.json.
  std::error_code error;
  const bool described =
      std::all_of(found.begin(), found.end(), [](const fs::path& path) { return path.filename() == "dataset_infos.json"; });
  if (described && fs::is_directory(folder / "data", error)) found = files_in(folder / "data");
  if (found.empty())
    throw base::data_error("data", "the folder {} holds no .jsonl, .json, .csv, .tsv, .parquet or .txt file.", folder.string());
  return train_part(std::move(found));
}

std::vector<fs::path> pattern_files(const std::string& pattern) {
  std::vector<fs::path> found;
  glob_t matches{};
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0) found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  return found;
}

}  // namespace

std::vector<fs::path> find_files(const std::string& asked) {
  std::error_code error;
  if (fs::is_directory(asked, error)) return folder_files(asked);
  if (fs::exists(asked, error)) return {asked};
  if (asked.find(',') != asked.npos) {
    std::vector<fs::path> found;
    for (const std::string& part : base::split(asked, ',')) {
      const auto some = find_files(base::trim(part));
      found.insert(found.end(), some.begin(), some.end());
    }
    return found;
  }
  if (asked.find_first_of("*?[") != asked.npos) {
    if (auto found = pattern_files(asked); !found.empty()) return found;
    throw base::data_error("data", "no file matches {} (looked from {}).", asked, fs::current_path(error).string());
  }
  base::refuse_if_hidden(asked);
  throw base::data_error("data", "{} does not exist (looked from {}). Give --data a file, a folder, or a pattern such as 'data/*.jsonl'.",
                         asked, fs::current_path(error).string());
}

void check_is_one_file(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  base::refuse_if_hidden(path);
  if (status.type() == fs::file_type::not_found) {
    throw base::data_error("data",
                           "{} does not exist (looked from {}). Give a .bin or text file with --data, or leave it out to train on the "
                           "built-in stories.",
                           path.string(), fs::current_path(error).string());
  }
  if (fs::is_directory(status)) throw base::data_error("data", "{} is a folder. Give one .bin or text file with --data.", path.string());
}

}  // namespace lockstep::corpus
