// One small file in each of the two folders; they belong together where both hold the same id.
#include "journal/owner.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash/fresh.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path id_file(const fs::path& run) { return run / "run_id"; }

std::string id_in(const fs::path& run) {
  std::error_code error;
  return fs::exists(id_file(run), error) ? std::string(base::trim(base::read_text(id_file(run)))) : "";
}

fs::path plain(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  if (error) whole = fs::absolute(path);
  return whole.has_filename() ? whole : whole.parent_path();
}

// By whatever path: a disk may be mounted in two places.
bool are_one(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return a == b || (fs::equivalent(a, b, error) && !error);
}

[[noreturn]] void refuse(const fs::path& checkpoints, const fs::path& owner, std::string_view fix) {
  throw base::usage_error(
      "launch", "trainer.checkpoint_dir {} belongs to the run {}. One folder holds the checkpoints of one run: choose another, {}.",
      checkpoints.string(), owner.string(), fix);
}

}  // namespace

std::optional<Owner> owner_of(const fs::path& checkpoints) {
  std::error_code error;
  const fs::path path = checkpoints / "owner.json";
  if (!fs::exists(path, error)) return std::nullopt;
  const Json json = base::json_if_any(base::read_text(path)).value_or(nullptr);
  if (!json.is_object() || !json.contains("run") || !json.contains("id")) {
    throw base::checkpoint_error("checkpoint", "{} is damaged. Delete it where the checkpoints beside it are of this run.", path.string());
  }
  return Owner{json["run"].get<std::string>(), json["id"].get<std::string>()};
}

std::string run_id(base::FileSystem& files, const RunFolder& run) {
  if (std::string id = id_in(run.root); !id.empty()) return id;
  const std::string id = base::fresh_id(4);
  base::write_text_atomically(files, id_file(run.root), id + "\n");
  return id;
}

void claim_checkpoints(base::FileSystem& files, const RunFolder& run, const fs::path& checkpoints, bool resumes) {
  const fs::path mine = plain(run.root), folder = plain(checkpoints);
  if (are_one(folder, plain(run.checkpoints()))) return;
  if (are_one(folder, mine)) {
    throw base::usage_error(
        "launch",
        "trainer.checkpoint_dir {} is the run folder itself. Leave it out: checkpoints then lie in {}. Or name a folder "
        "of their own.",
        checkpoints.string(), run.checkpoints().string());
  }
  std::error_code error;
  if (folder.filename() == "checkpoints" && fs::exists(folder.parent_path() / "config.yaml", error))
    refuse(checkpoints, folder.parent_path(), "or leave it out");
  if (const auto owner = owner_of(folder)) {
    const std::string id = id_in(mine);
    // A copy of a run folder has its id too: the folder belongs to the first, while that is there.
    const bool copied = !are_one(owner->run, mine) && id_in(owner->run) == id;
    if (id.empty() || owner->id != id || copied) {
      refuse(checkpoints, owner->run,
             id_in(owner->run) == owner->id
                 ? fmt::format("or go on with that run (--output {} --name {} --resume auto)", owner->run.parent_path().string(),
                               owner->run.filename().string())
                 : fmt::format("or delete {} if that run is gone and its checkpoints may go too", (folder / "owner.json").string()));
    }
    if (owner->run == mine) return;
  } else if (!resumes && !list_checkpoints(folder).empty()) {
    throw base::usage_error("launch",
                            "trainer.checkpoint_dir {} already holds checkpoints. Go on from them (--resume auto), or choose another.",
                            checkpoints.string());
  }
  files.create_directories(folder);
  base::write_text_atomically(files, folder / "owner.json", Json{{"run", mine.string()}, {"id", run_id(files, run)}}.dump(1) + "\n");
}

}  // namespace lockstep::journal
