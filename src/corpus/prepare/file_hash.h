// The hash of a file's content, remembered for as long as the file stays what it was.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::corpus {

// Reads `content` unless a file of the same path, size, inode and times was hashed before: then its hash is found in `folder`, so
// that N ranks, and every later start, need not read all data again.
std::string hash_file(const std::filesystem::path& path, std::string_view content, const std::filesystem::path& folder);

}  // namespace lockstep::corpus
