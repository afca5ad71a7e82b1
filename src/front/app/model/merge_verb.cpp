// `lockstep merge`: adapters folded into the model they belong to, as a Hugging Face model folder.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/adapter/fit.h"
#include "config/adapter/folder.h"
#include "config/model_folder.h"
#include "front/app/become_worker.h"
#include "front/app/flags.h"
#include "front/app/model/output_folder.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

struct MergeWish {
  std::string model;
  std::vector<std::string> adapters;
  FolderFlags folder;
};

}  // namespace

int run_merge_verb(std::span<const std::string> args) {
  MergeWish wish;
  CLI::App app{"Folds LoRA adapters into their model and writes the result as a Hugging Face model folder.", "lockstep merge"};
  app.add_option("--model", wish.model, "model folder that the adapters belong to; the adapter's own if left out");
  app.add_option("--adapter", wish.adapters, "adapter folder (PEFT's form); several are folded in one after another")->required();
  wish.folder.add_to(app, "the model folder's");
  if (!read_flags(app, args, "merge")) return 0;

  for (const std::string& adapter : wish.adapters) config::read_adapter_folder(adapter);
  if (wish.model.empty()) wish.model = config::adapter_base(wish.adapters.front());
  config::ModelConfig model = config::read_model_folder(wish.model).model;
  model.path = wish.model;
  for (const std::string& adapter : wish.adapters) config::check_adapter_fits(adapter, model, config::AdapterUse::merge);
  const std::vector<std::string> how = wish.folder.arguments("merge");
  std::vector<std::string> arguments = {"merge",
                                        "--model",
                                        wish.model,
                                        "--adapters",
                                        fmt::format("{}", fmt::join(wish.adapters, "\n")),
                                        "--output",
                                        new_output_folder("merge", wish.folder.output)};
  arguments.insert(arguments.end(), how.begin(), how.end());
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = "cpu";
  become_worker("merge", arguments, std::move(environment));
}

}  // namespace lockstep::app
