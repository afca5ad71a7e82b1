// The form of a new run: every setting from the one table, and what a set of values would come to, with its mistakes at their fields.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "front/serve/folders.h"
#include "front/serve/form/counting.h"

namespace lockstep::serve {

// By key of the table, as a person typed them.
using Values = std::map<std::string, std::string>;

nlohmann::ordered_json schema();
// UserError where one is no key of the table: other spellings are for files and command lines.
void expect_own_keys(const Values& values);

// What `lockstep train` would do with these values. Touches nothing on disk.
struct Draft {
  Values values;
  std::string launcher = "lockstep";               // commands.h
  std::optional<std::filesystem::path> file = {};  // a run's config.yaml, that it goes on from

  // {"errors": [{"keys": [...], "text": ...}], "plan": ..., "model": ..., and what commands_of() says}; the plan is there where nothing is
  // wrong.
  nlohmann::ordered_json judged = {};
  std::string name = {};  // of the run
  bool good = false;
  std::vector<std::string> arguments = {};  // behind `lockstep`
};
// `counting`: null where nobody asks how long an epoch is.
struct Asked {
  Values values;
  std::string resumed = {};  // a run that goes on
  std::string launcher = "lockstep";
};
Draft draft(const Folders& folders, Counting* counting, Asked asked);

// The settings that a sentence speaks of, by their keys, aliases or flags.
std::vector<std::string> settings_named_in(const std::string& text);

}  // namespace lockstep::serve
