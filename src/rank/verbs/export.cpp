// Hands the tensors of a checkpoint to the writers of model folders.
#include "rank/verbs/export.h"

#include "base/error.h"
#include "base/progress_bar.h"
#include "base/text.h"
#include "rank/hub/peft.h"
#include "rank/model/projection/adapter.h"
#include "rank/train/export.h"
#include "rank/train/resume/state.h"

namespace lockstep::verbs {
namespace {

namespace fs = std::filesystem;

// A run with adapters has nothing else in its checkpoints: they become a PEFT folder.
std::string export_checkpoint_adapter(const ExportRequest& request, const config::RunConfig& config, const checkpoint::Reader& reader) {
  std::vector<std::unique_ptr<model::Unit>> units;
  std::vector<const model::Unit*> adapters;
  for (std::optional<model::UnitSpec>& spec : model::adapter_units(config.model, config.lora)) {
    if (!spec) continue;
    units.push_back(std::make_unique<model::Unit>(std::move(*spec), model::UnitStorage{}));
    adapters.push_back(units.back().get());
    for (const auto& [name, view] : units.back()->pieces_of(units.back()->exact())) reader.read("model", name, view);
  }
  hub::write_peft_folder(base::real_files(), request.output, config.lora, train::base_model_of(config.model), adapters);
  return fmt::format("{}: the adapter of {}, as a PEFT folder", request.output.string(), reader.folder().string());
}

}  // namespace

FolderRequest parse_folder_request(const Arguments& arguments) {
  FolderRequest request{.output = argument(arguments, "output"), .dtype = argument(arguments, "dtype")};
  if (const auto bytes = base::parse_integer(argument(arguments, "max-shard-bytes")))
    request.max_shard_bytes = static_cast<std::uint64_t>(*bytes);
  request.nf4 = argument(arguments, "nf4") == "1";
  return request;
}

ExportRequest parse_export_request(const Arguments& arguments) {
  return {parse_folder_request(arguments), argument(arguments, "run"), argument(arguments, "checkpoint")};
}

std::string export_checkpoint(const ExportRequest& request) {
  const journal::RunFolder folder{request.run};
  config::RunConfig config = config::load_resolved(folder.config());
  config.model = config::with_defaults(config.model);
  const fs::path where = request.checkpoint.empty() ? train::newest_checkpoint("export", config, folder) : request.checkpoint;
  const checkpoint::Reader reader(where);
  train::check_same_model(reader, config.model);
  if (config.lora.enabled) return export_checkpoint_adapter(request, config, reader);
  hub::HubExport what = train::hub_export_of(config);
  what.dtype = config::dtype_named(request.dtype).value_or(config.model.dtype);
  what.max_shard_bytes = request.max_shard_bytes;
  what.nf4 = request.nf4;
  base::ProgressBar bar;
  std::uint64_t total = 0;
  hub::write_hub_folder(base::real_files(), request.output, what,
                        {.fetch = [&](const std::string& name) { return reader.view("model", name); },
                         .done = [&](const std::string& name) { reader.forget("model", name); }},
                        [&](std::uint64_t bytes, std::uint64_t of) {
                          total = of;
                          bar.show(bytes, of, fmt::format("{} of {}", base::human_bytes(bytes), base::human_bytes(of)));
                        });
  return fmt::format("{}: {} in {}, from {}", request.output.string(), base::human_bytes(total), config::name_of(what.dtype),
                     where.string());
}

}  // namespace lockstep::verbs
