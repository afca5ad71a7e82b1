// Hands the tensors of a run to the writers of model folders.
#include "rank/train/export.h"

#include <ATen/ops/full.h>

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

namespace {

// Units become whole one after the other, as the first rank asks for them. Collective: the others follow() while it calls whole().
class UnitsInTurn {
 public:
  explicit UnitsInTurn(const Run& run) : run_(run) {}

  const model::Unit& whole(std::int64_t unit) {
    if (unit != open_) turn_to(unit);
    return *run_.replica.units[static_cast<std::size_t>(unit)];
  }
  void end() { turn_to(nothing); }
  void follow() {
    while (turn_to(nothing) != nothing) {
    }
  }

 private:
  static constexpr std::int64_t nothing = -1;

  std::int64_t turn_to(std::int64_t unit) {
    model::Store& store = *run_.replica.store;
    if (run_.replica.store->opens_together()) {
      const comm::Group& everyone = run_.mesh->everyone();
      everyone.meet("exporting the model");  // the first rank's disk may be slow
      const at::Tensor number = at::full({1}, unit, at::kLong).to(everyone.device());
      everyone.broadcast(number, 0, "the unit that is exported next").wait();
      unit = number.item<std::int64_t>();
    }
    if (open_ != nothing) store.close(static_cast<std::size_t>(open_), {});
    if (unit != nothing) store.open(static_cast<std::size_t>(unit), {});
    return open_ = unit;
  }

  const Run& run_;
  std::int64_t open_ = nothing;
};

}  // namespace

fs::path export_model(const Run& run) {
  const fs::path folder = run.folder.root / "model";
  UnitsInTurn units(run);
  if (!run.is_first()) {
    if (run.replica.store->opens_together()) units.follow();
    return folder;
  }
  struct Where {
    std::int64_t unit;
    std::size_t piece;
  };
  std::map<std::string, Where> where;
  for (std::size_t unit = 0; unit < run.replica.units.size(); ++unit) {
    const auto pieces = run.replica.units[unit]->pieces_of(run.replica.units[unit]->weights());
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) where[pieces[piece].name] = {static_cast<std::int64_t>(unit), piece};
  }
  const auto fetch = [&](const std::string& name) {
    const auto [number, piece] = where.at(name);
    const model::Unit& unit = units.whole(number);
    return unit.pieces_of(unit.shard() ? unit.weights() : unit.exact())[piece].view;
  };
  hub::write_hub_folder(base::real_files(), folder, hub_export_of(run.config), {.fetch = fetch});
  units.end();
  return folder;
}

fs::path export_adapter(const Run& run) {
  const fs::path folder = run.folder.root / "adapter";
  const std::vector<model::Unit*> trained = run.replica.trained_in_forward_order();
  hub::write_peft_folder(base::real_files(), folder, run.config.lora, base_model_of(run.config.model), {trained.begin(), trained.end()});
  return folder;
}

}  // namespace lockstep::train
