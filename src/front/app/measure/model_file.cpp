// Looks for a model's file where people keep them.
#include "front/app/measure/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "front/launch/libtorch.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

// models/ here, beside or above the program, and where an installed program's are.
std::vector<fs::path> model_folders() {
  std::vector<fs::path> folders = {"models"};
  fs::path folder = launch::own_program().parent_path();
  for (int up = 0; up < 3; ++up, folder = folder.parent_path()) folders.push_back(folder / "models");
  folders.push_back(launch::own_program().parent_path().parent_path() / "share" / "lockstep" / "models");
  return folders;
}

}  // namespace

fs::path find_model(const std::string& name, const std::string& room) {
  std::error_code error;
  if (fs::is_regular_file(name, error)) return name;
  std::vector<std::string> names;
  for (const fs::path& folder : model_folders()) {
    if (fs::is_regular_file(folder / (name + ".yaml"), error)) return folder / (name + ".yaml");
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string stem = entry.path().stem().string();
      if (entry.path().extension() == ".yaml" && std::find(names.begin(), names.end(), stem) == names.end()) names.push_back(stem);
    }
  }
  std::sort(names.begin(), names.end());
  const auto near = base::nearest(name, names);
  throw base::usage_error(room, "there is no model '{}': neither a file of that name nor one in models/.{} There {}.", name,
                          near ? fmt::format(" Did you mean {}?", *near) : "",
                          names.empty() ? "is no models/ folder here" : "are " + base::join(names, ", "));
}

}  // namespace lockstep::app
