// Reads the flags of verbs that write model folders.
#include "front/app/model/output_folder.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

// "f32", "f16", "bf16" for any spelling, "" for none; UserError otherwise.
std::string dtype_flag(const std::string& verb, const std::string& text) {
  if (text.empty()) return {};
  const auto dtype = config::dtype_named(base::lower(text));
  if (!dtype) throw base::usage_error(verb, "--dtype {} is not one of bf16, f16 and f32.", text);
  return std::string(config::name_of(*dtype));
}

// "5GB" is 5000000000 as in transformers, "5GiB" is 5 x 2^30.
std::uint64_t shard_size_flag(const std::string& verb, const std::string& text) {
  constexpr std::pair<const char*, double> units[] = {{"gib", 1ull << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
                                                      {"gb", 1e9},         {"mb", 1e6},      {"kb", 1e3}};
  const std::string lower = base::lower(base::trim(text));
  for (const auto& [unit, size] : units) {
    if (!lower.ends_with(unit)) continue;
    const auto number = base::parse_number(base::trim(lower.substr(0, lower.size() - std::string_view(unit).size())));
    if (number && std::isfinite(*number) && *number > 0 && *number * size <= 1e18 && *number * size >= 1)
      return static_cast<std::uint64_t>(*number * size);
  }
  throw base::usage_error(verb, "--max-shard-size {} is not a size. For example 5GB, 500MB or 2GiB.", text);
}

}  // namespace

void FolderFlags::add_to(CLI::App& app, const std::string& whose) {
  app.add_option("--output", output, "folder to make; it may not hold anything yet")->required();
  app.add_option("--dtype", dtype, "bf16, f16 or f32; " + whose + " if left out");
  app.add_option("--max-shard-size", max_shard_size, "a file ends where the next tensor would make it larger")->capture_default_str();
  app.add_flag("--load-in-4bit", load_in_4bit, "matrices of blocks as NF4, in bitsandbytes' form; --dtype is what they compute in");
}

std::vector<std::string> FolderFlags::arguments(const std::string& verb) const {
  const std::string type = dtype_flag(verb, dtype);
  std::vector<std::string> arguments = {"--max-shard-bytes", std::to_string(shard_size_flag(verb, max_shard_size))};
  if (load_in_4bit) arguments.insert(arguments.end(), {"--nf4", "1"});
  if (!type.empty()) arguments.insert(arguments.end(), {"--dtype", type});
  return arguments;
}

std::string new_output_folder(const std::string& verb, std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  const bool free = !fs::exists(path, error) || (fs::is_directory(path, error) && fs::is_empty(path, error));
  if (!free) throw base::usage_error(verb, "--output {} is there already and not empty. Name a new folder, or remove that one.", path);
  return path;
}

}  // namespace lockstep::app
