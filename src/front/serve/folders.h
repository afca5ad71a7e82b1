// Which folders the page may read and write: where runs lie, and those that whoever started it has allowed.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep::serve {

// Any thread.
class Folders {
 public:
  // `output`: where runs lie; made where it is not there. `allowed`: beside it. UserError where one of them is no folder.
  Folders(std::filesystem::path output, const std::vector<std::string>& allowed);

  const std::filesystem::path& output() const { return output_; }
  const std::vector<std::filesystem::path>& allowed() const { return allowed_; }

  bool allows(const std::filesystem::path& path) const;  // links followed
  // Every setting that names a file or folder. UserError that names the allowed folders where one lies in none of them; also for `output`,
  // which is the page's own.
  void expect_allowed(const std::map<std::string, std::string>& settings) const;

  // A run by its name: a folder in output() and nothing else. UserError where the name is none.
  std::filesystem::path run(const std::string& name) const;
  static bool is_name(const std::string& name);        // of a run or a preset that is there: one part of a path, in UTF-8
  static bool is_plain_name(const std::string& name);  // of one that is made here: it needs no quotes anywhere
  // Where the page keeps what is not a run's own: its starts, presets, the queue.
  std::filesystem::path own() const { return output_ / ".ui"; }

 private:
  base::UserError outside(const std::string& what) const;

  std::filesystem::path output_;
  std::vector<std::filesystem::path> allowed_;  // without links, output_ first
};

// Settings that name files or folders, and what else of text there is: together every text of the table.
const std::vector<std::string>& path_settings();

}  // namespace lockstep::serve
