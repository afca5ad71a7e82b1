// Which matmul algorithm was fastest for which product, kept in a file so that the search happens once per machine.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep::kernels {

// Not for several threads at once; several processes may share the file: each replaces it whole, with what it found there merged in.
// A file that cannot be read or written costs a search at the next start, nothing else.
class MatmulCache {
 public:
  using Choice = std::array<std::uint64_t, 8>;  // the library's algorithm, as it may be stored

  // Empty path: remembers in memory alone.
  explicit MatmulCache(std::filesystem::path path);

  // key: one line without tabs.
  std::optional<Choice> find(const std::string& key) const;
  void remember(const std::string& key, const Choice& choice);

 private:
  void read();

  std::filesystem::path path_;
  std::map<std::string, Choice> choices_;
};

// $LOCKSTEP_CACHE, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep, and in it a file for this device and version of the library.
std::filesystem::path matmul_cache_path(const std::string& device, std::size_t library_version);

}  // namespace lockstep::kernels
