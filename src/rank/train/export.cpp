// Hands the tensors of a run to the writers of model folders.
#include "rank/train/export.h"

#include "rank/hub/peft.h"
#include "rank/model/projection/adapter.h"

namespace lockstep::train {

namespace fs = std::filesystem;

std::string base_model_of(const config::ModelConfig& model) { return model.path.empty() ? model.name : model.path; }

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
  hub::write_peft_folder(base::real_files(), folder, run.config.lora, base_model_of(run.config.model), {trained.begin(), trained.end()});
  return folder;
}

}  // namespace lockstep::train
