// `lockstep export`: a run's checkpoint as a Hugging Face model folder.
#include <fmt/format.h>

#include "base/error.h"
#include "front/app/become_worker.h"
#include "front/app/flags.h"
#include "front/app/output_folder.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

struct Wish {
  std::string run, checkpoint, output, dtype, max_shard_size = "5GB";
  bool load_in_4bit = false;
};

void describe(CLI::App& app, Wish& wish) {
  app.add_option("--run", wish.run, "run folder, such as runs/nano-20260131-120000")->required();
  app.add_option("--output", wish.output, "folder to make; it may not hold anything yet")->required();
  app.add_option("--checkpoint", wish.checkpoint, "a checkpoint's folder; the newest whole one of the run if left out");
  app.add_option("--dtype", wish.dtype, "bf16, f16 or f32; as the run computed if left out");
  app.add_option("--max-shard-size", wish.max_shard_size, "a file ends where the next tensor would make it larger")->capture_default_str();
  app.add_flag("--load-in-4bit", wish.load_in_4bit, "matrices of blocks as NF4, in bitsandbytes' form; --dtype is what they compute in");
}

}  // namespace

int run_export_verb(std::span<const std::string> args) {
  Wish wish;
  CLI::App app{"Writes a run's newest checkpoint as a Hugging Face model folder, which transformers and vLLM load.", "lockstep export"};
  describe(app, wish);
  if (!read_flags(app, args, "export")) return 0;
  const std::string dtype = dtype_flag("export", wish.dtype);
  const std::uint64_t shard_bytes = shard_size_flag("export", wish.max_shard_size);
  expect_run_folder("export", wish.run);
  wish.output = new_output_folder("export", wish.output);
  std::vector<std::string> arguments = {
      "export", "--run", wish.run, "--output", wish.output, "--max-shard-bytes", std::to_string(shard_bytes)};
  if (wish.load_in_4bit) arguments.insert(arguments.end(), {"--nf4", "1"});
  if (!dtype.empty()) arguments.insert(arguments.end(), {"--dtype", dtype});
  if (!wish.checkpoint.empty()) arguments.insert(arguments.end(), {"--checkpoint", wish.checkpoint});
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = "cpu";
  become_worker("export", arguments, std::move(environment));
}

}  // namespace lockstep::app
