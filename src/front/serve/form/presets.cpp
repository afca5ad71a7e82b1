// Small JSON files, and models/ beside or above the program.
#include "front/serve/form/presets.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "front/launch/libtorch.h"
#include "front/serve/form/import.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path preset_path(const Folders& folders, const std::string& name) {
  if (!Folders::is_plain_name(name))
    throw base::usage_error("ui", "a preset has a plain name: letters, digits, '.', '-' and '_', at most 120 of them.");
  return folders.own() / "presets" / (name + ".json");
}

std::vector<fs::path> files_in(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Where the program's own run files lie: beside it, or above it in a build tree.
fs::path models_folder() {
  fs::path folder = launch::own_program().parent_path();
  std::error_code error;
  for (int up = 0; up < 4; ++up, folder = folder.parent_path()) {
    for (const fs::path& candidate : {folder / "models", folder / "share/lockstep/models"}) {
      if (fs::is_directory(candidate, error)) return candidate;
    }
  }
  return {};
}

}  // namespace

Json list_presets(const Folders& folders) {
  Json list = Json::array();
  for (const fs::path& file : files_in(folders.own() / "presets", ".json")) {
    const auto json = base::json_if_any(base::read_text(file));
    if (json && json->is_object()) list.push_back({{"name", file.stem().string()}, {"own", true}, {"settings", *json}});
  }
  for (const fs::path& file : files_in(models_folder(), ".yaml")) {
    try {
      list.push_back({{"name", file.stem().string()}, {"own", false}, {"settings", import_text(base::read_text(file))["settings"]}});
    } catch (const base::UserError&) {  // of a later version
    }
  }
  return list;
}

void save_preset(const Folders& folders, const std::string& name, const Values& values) {
  expect_own_keys(values);
  const fs::path path = preset_path(folders, name);
  base::real_files().create_directories(path.parent_path());
  base::write_text_atomically(base::real_files(), path, Json(values).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void delete_preset(const Folders& folders, const std::string& name) {
  std::error_code error;
  fs::remove(preset_path(folders, name), error);
}

}  // namespace lockstep::serve
