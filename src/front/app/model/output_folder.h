// Flags that verbs share which write model folders.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::app {

// How the folder is to be written.
struct FolderFlags {
  std::string output, dtype, max_shard_size = "5GB";
  bool load_in_4bit = false;

  // whose: what gives the dtype that is left out, "the model folder's".
  void add_to(CLI::App& app, const std::string& whose);
  // All but the output, checked, as the worker takes them. UserError of `verb`.
  std::vector<std::string> arguments(const std::string& verb) const;
};

// The path without a slash at its end; UserError where something is there already.
std::string new_output_folder(const std::string& verb, std::string path);

}  // namespace lockstep::app
