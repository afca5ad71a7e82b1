// `lockstep export`: a run's checkpoint as a Hugging Face model folder.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "front/app/become_worker.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

struct Wish {
  std::string run, checkpoint, output, dtype, max_shard_size = "5GB";
};

void describe(CLI::App& app, Wish& wish) {
  app.add_option("--run", wish.run, "run folder, such as runs/nano-20260131-120000")->required();
  app.add_option("--output", wish.output, "folder to make; it may not hold anything yet")->required();
  app.add_option("--checkpoint", wish.checkpoint, "a checkpoint's folder; the newest whole one of the run if left out");
  app.add_option("--dtype", wish.dtype, "bf16, f16 or f32; as the run computed if left out");
  app.add_option("--max-shard-size", wish.max_shard_size, "a file ends where the next tensor would make it larger")->capture_default_str();
}

std::string dtype_named(const std::string& text) {
  const std::string name = base::lower(text);
  if (name.empty() || name == "f32" || name == "f16" || name == "bf16") return name;
  if (name == "float32" || name == "fp32") return "f32";
  if (name == "float16" || name == "fp16" || name == "half") return "f16";
  if (name == "bfloat16") return "bf16";
  throw base::usage_error("export", "--dtype {} is not one of bf16, f16 and f32.", text);
}

// "5GB" is 5000000000 as in transformers, "5GiB" is 5 x 2^30.
std::uint64_t bytes_of(const std::string& text) {
  constexpr std::pair<const char*, double> units[] = {{"gib", 1ull << 30}, {"mib", 1 << 20}, {"kib", 1 << 10},
                                                      {"gb", 1e9},         {"mb", 1e6},      {"kb", 1e3}};
  const std::string lower = base::lower(base::trim(text));
  for (const auto& [unit, size] : units) {
    if (!lower.ends_with(unit)) continue;
    const auto number = base::parse_number(base::trim(lower.substr(0, lower.size() - std::string_view(unit).size())));
    if (number && std::isfinite(*number) && *number > 0 && *number * size <= 1e18 && *number * size >= 1)
      return static_cast<std::uint64_t>(*number * size);
  }
  throw base::usage_error("export", "--max-shard-size {} is not a size. For example 5GB, 500MB or 2GiB.", text);
}

void expect_free(const std::string& output) {
  std::error_code error;
  if (!fs::exists(output, error)) return;
  if (fs::is_directory(output, error) && fs::is_empty(output, error)) return;
  throw base::usage_error("export", "--output {} is there already and not empty. Name a new folder, or remove that one.", output);
}

}  // namespace

int run_export_verb(std::span<const std::string> args) {
  Wish wish;
  CLI::App app{"Writes a run's newest checkpoint as a Hugging Face model folder, which transformers and vLLM load.", "lockstep export"};
  describe(app, wish);
  if (!read_flags(app, args, "export")) return 0;
  const std::string dtype = dtype_named(wish.dtype);
  const std::uint64_t shard_bytes = bytes_of(wish.max_shard_size);
  while (wish.output.size() > 1 && wish.output.ends_with('/')) wish.output.pop_back();
  expect_run_folder("export", wish.run);
  expect_free(wish.output);
  std::vector<std::string> arguments = {"export", "--run", wish.run, "--output", wish.output, "--max-shard-bytes",
                                        std::to_string(shard_bytes)};
  if (!dtype.empty()) arguments.insert(arguments.end(), {"--dtype", dtype});
  if (!wish.checkpoint.empty()) arguments.insert(arguments.end(), {"--checkpoint", wish.checkpoint});
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = "cpu";
  become_worker("export", arguments, std::move(environment));
}

}  // namespace lockstep::app
