// Which files a path, a folder, a pattern or a list of them means.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::corpus {

// Of records. UserError(ExitCode::data) where there are none.
std::vector<std::filesystem::path> find_files(const std::string& asked);

// Tokens and text without a tokenizer come from one file. UserError(ExitCode::data) where it is none.
void check_is_one_file(const std::filesystem::path& path);

}  // namespace lockstep::corpus
