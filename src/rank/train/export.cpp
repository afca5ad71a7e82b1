// Hands tensors of a run or of a checkpoint to the writer of model folders.
#include "rank/train/export.h"

#include "base/error.h"
#include "base/text.h"
#include "rank/hub/peft.h"
#include "rank/model/adapter.h"
#include "rank/train/progress_bar.h"
#include "rank/train/state.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// What the adapters of a run belong to.
std::string base_of(const config::ModelConfig& model) { return model.path.empty() ? model.name : model.path; }

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
  hub::write_peft_folder(base::real_files(), request.output, config.lora, base_of(config.model), adapters);
  return fmt::format("{}: the adapter of {}, as a PEFT folder", request.output.string(), reader.folder().string());
}

}  // namespace

hub::HubExport hub_export_of(const config::RunConfig& config) {
  std::error_code error;
  hub::HubExport what{.model = config.model, .dtype = config.model.dtype};
  // The folder may be gone when an old run is exported; the shape says all that is needed.
  if (!config.model.path.empty() && fs::exists(fs::path(config.model.path) / "config.json", error)) what.source = config.model.path;
  what.tokenizer = config.data.tokenizer.empty() ? what.source : fs::path(config.data.tokenizer);
  return what;
}

fs::path export_model(const Run& run) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& unit : run.replica.units) {
    for (auto& [name, view] : unit->pieces_of(unit->exact())) tensors[name] = view;
  }
  const fs::path folder = run.folder.root / "model";
  hub::write_hub_folder(base::real_files(), folder, hub_export_of(run.config),
                        {.fetch = [&](const std::string& name) { return tensors.at(name); }});
  return folder;
}

fs::path export_adapter(const Run& run) {
  const fs::path folder = run.folder.root / "adapter";
  const std::vector<model::Unit*> trained = run.replica.trained_in_forward_order();
  hub::write_peft_folder(base::real_files(), folder, run.config.lora, base_of(run.config.model), {trained.begin(), trained.end()});
  return folder;
}

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
  const record::RunFolder folder{request.run};
  config::RunConfig config = config::load_resolved(folder.config());
  config.model = config::with_defaults(config.model);
  const fs::path where = request.checkpoint.empty() ? newest_checkpoint("export", config, folder) : request.checkpoint;
  const checkpoint::Reader reader(where);
  check_same_model(reader, config.model);
  if (config.lora.enabled) return export_checkpoint_adapter(request, config, reader);
  hub::HubExport what = hub_export_of(config);
  what.dtype = config::dtype_named(request.dtype).value_or(config.model.dtype);
  what.max_shard_bytes = request.max_shard_bytes;
  what.nf4 = request.nf4;
  ProgressBar bar;
  std::uint64_t total = 0;
  hub::write_hub_folder(base::real_files(), request.output, what,
                        {.fetch = [&](const std::string& name) { return reader.view("model", name); },
                         .done = [&](const std::string& name) { reader.forget("model", name); }},
                        [&](std::uint64_t bytes, std::uint64_t of) {
                          total = of;
                          bar.show(bytes, of);
                        });
  return fmt::format("{}: {} in {}, from {}", request.output.string(), base::human_bytes(total), config::name_of(what.dtype),
                     where.string());
}

}  // namespace lockstep::train
