// What the config tests share: a folder that goes away, settings from a text, and the message of a mistake.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace lockstep::config {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-config-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline Settings load_text(const std::string& text, const std::vector<std::string>& args = {},
                          std::map<std::string, std::string> environment = {}) {
  const TemporaryFolder folder;
  Request request = parse_command_line(args, std::move(environment)).request;
  request.file = folder.write("run.yaml", text);
  return load(request);
}

inline Settings load_args(const std::vector<std::string>& args, std::map<std::string, std::string> environment = {}) {
  return load(parse_command_line(args, std::move(environment)).request);
}

// The message of the UserError that `action` throws; "" and a failed test if it throws none.
template <typename Action>
std::string mistake(Action action) {
  try {
    action();
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "no mistake was reported";
  return {};
}

}  // namespace lockstep::config
