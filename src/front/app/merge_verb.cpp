// `lockstep merge`: adapters folded into the model they belong to, as a Hugging Face model folder.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/adapter_folder.h"
#include "config/model_folder.h"
#include "front/app/become_worker.h"
#include "front/app/flags.h"
#include "front/app/output_folder.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

struct Wish {
  std::string model, output, dtype, max_shard_size = "5GB";
  bool load_in_4bit = false;
  std::vector<std::string> adapters;
};

}  // namespace

int run_merge_verb(std::span<const std::string> args) {
  Wish wish;
  CLI::App app{"Folds LoRA adapters into their model and writes the result as a Hugging Face model folder.", "lockstep merge"};
  app.add_option("--model", wish.model, "model folder that the adapters belong to; the adapter's own if left out");
  app.add_option("--adapter", wish.adapters, "adapter folder (PEFT's form); several are folded in one after another")->required();
  app.add_option("--output", wish.output, "folder to make; it may not hold anything yet")->required();
  app.add_option("--dtype", wish.dtype, "bf16, f16 or f32; the model folder's if left out");
  app.add_option("--max-shard-size", wish.max_shard_size, "a file ends where the next tensor would make it larger")->capture_default_str();
  app.add_flag("--load-in-4bit", wish.load_in_4bit, "matrices of blocks as NF4, in bitsandbytes' form; --dtype is what they compute in");
  if (!read_flags(app, args, "merge")) return 0;

  for (const std::string& adapter : wish.adapters) config::read_adapter_folder(adapter);
  if (wish.model.empty()) wish.model = config::adapter_base(wish.adapters.front());
  config::read_model_folder(wish.model);
  const std::string dtype = dtype_flag("merge", wish.dtype);
  const std::uint64_t shard_bytes = shard_size_flag("merge", wish.max_shard_size);
  const std::string output = new_output_folder("merge", wish.output);
  std::vector<std::string> arguments = {"merge",
                                        "--model",
                                        wish.model,
                                        "--adapters",
                                        fmt::format("{}", fmt::join(wish.adapters, "\n")),
                                        "--output",
                                        output,
                                        "--max-shard-bytes",
                                        std::to_string(shard_bytes)};
  if (wish.load_in_4bit) arguments.insert(arguments.end(), {"--nf4", "1"});
  if (!dtype.empty()) arguments.insert(arguments.end(), {"--dtype", dtype});
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = "cpu";
  become_worker("merge", arguments, std::move(environment));
}

}  // namespace lockstep::app
