// Reading a YAML or JSON file into a flat list of keys with their lines.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/table/value.h"

namespace lockstep::config {

// One value of a file. `key` is dotted, as the file spells it.
struct FileEntry {
  std::string key;
  Written written;
  int line;  // from 1
};

// A mistake in a file: what is wrong and the fix, without the place.
struct FileProblem {
  int line;
  std::string text;
};

struct FileContent {
  std::vector<FileEntry> entries;
  std::vector<FileProblem> problems;
};

// A file that is here, or that came with the program: models/nano.yaml, and nano for short, are found wherever one is. What is nowhere is
// given back as it was asked for.
std::filesystem::path find_config_file(const std::filesystem::path& asked);

// Throws UserError when the file cannot be read at all (missing, a folder, not text, broken syntax).
FileContent read_config_file(const std::filesystem::path& path);
FileContent parse_config_text(const std::string& text, const std::string& name);

}  // namespace lockstep::config
