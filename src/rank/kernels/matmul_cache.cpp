// The file of matmul choices: a line each, key, tab, eight numbers in hex. Lines of any other form are not ours and are dropped.
#include "rank/kernels/matmul_cache.h"

#include <unistd.h>

#include <cctype>
#include <fstream>
#include <sstream>

#include "base/file/cache_folder.h"

namespace lockstep::kernels {

namespace {

std::optional<MatmulCache::Choice> parsed(const std::string& text) {
  std::istringstream words(text);
  words >> std::hex;
  MatmulCache::Choice choice{};
  for (auto& word : choice)
    if (!(words >> word)) return std::nullopt;
  std::string more;
  if (words >> more) return std::nullopt;
  return choice;
}

}  // namespace

MatmulCache::MatmulCache(std::filesystem::path path) : path_(std::move(path)) { read(); }

void MatmulCache::read() {
  if (path_.empty()) return;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const auto tab = line.find('\t');
    if (tab == std::string::npos || tab == 0) continue;
    if (const auto choice = parsed(line.substr(tab + 1))) choices_.emplace(line.substr(0, tab), *choice);
  }
}

std::optional<MatmulCache::Choice> MatmulCache::find(const std::string& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

void MatmulCache::remember(const std::string& key, const Choice& choice) {
  choices_[key] = choice;
  if (path_.empty()) return;
  read();  // what other processes found meanwhile; our own choices stay
  std::error_code failed;
  std::filesystem::create_directories(path_.parent_path(), failed);
  auto fresh = path_;
  fresh += "." + std::to_string(::getpid());
  {
    std::ofstream file(fresh);
    for (const auto& [name, numbers] : choices_) {
      file << name << '\t' << std::hex;
      for (const auto number : numbers) file << number << ' ';
      file << '\n';
    }
    file.close();
    if (!file) {
      std::filesystem::remove(fresh, failed);
      return;
    }
  }
  std::filesystem::rename(fresh, path_, failed);
}

std::filesystem::path matmul_cache_path(const std::string& device, std::size_t library_version) {
  constexpr int search = 4;  // raised when the search gets better: what an earlier one found is not taken
  std::string name = "matmul-" + std::to_string(search) + "-" + device + "-" + std::to_string(library_version) + ".txt";
  for (auto& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
  const std::filesystem::path folder = base::cache_folder();
  return folder.empty() ? folder : folder / name;
}

}  // namespace lockstep::kernels
