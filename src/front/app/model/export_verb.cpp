// `lockstep export`: a run's checkpoint as a Hugging Face model folder.
#include <fmt/format.h>

#include "base/error.h"
#include "front/app/become_worker.h"
#include "front/app/flags.h"
#include "front/app/model/output_folder.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

struct ExportWish {
  std::string run, checkpoint;
  FolderFlags folder;
};

void describe(CLI::App& app, ExportWish& wish) {
  app.add_option("--run", wish.run, "run folder, such as runs/nano-20260131-120000")->required();
  app.add_option("--checkpoint", wish.checkpoint, "a checkpoint's folder; the newest whole one of the run if left out");
  wish.folder.add_to(app, "as the run computed");
}

}  // namespace

int run_export_verb(std::span<const std::string> args) {
  ExportWish wish;
  CLI::App app{"Writes a run's newest checkpoint as a Hugging Face model folder, which transformers and vLLM load.", "lockstep export"};
  describe(app, wish);
  if (!read_flags(app, args, "export")) return 0;
  const std::vector<std::string> how = wish.folder.arguments("export");
  expect_run_folder("export", wish.run);
  std::vector<std::string> arguments = {"export", "--run", wish.run, "--output", new_output_folder("export", wish.folder.output)};
  arguments.insert(arguments.end(), how.begin(), how.end());
  if (!wish.checkpoint.empty()) arguments.insert(arguments.end(), {"--checkpoint", wish.checkpoint});
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = "cpu";
  become_worker("export", arguments, std::move(environment));
}

}  // namespace lockstep::app
