// The state of a run as a checkpoint keeps it.
#include "rank/train/resume/state.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "layout/shape.h"
#include "rank/train/resume/identity.h"
#include "rank/train/resume/read_together.h"
#include "rank/train/resume/resume.h"
#include "journal/timeline.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// null where nothing is stretched, as checkpoints say that know no scaling.
Json json_of(const config::RopeScalingConfig& scaling) {
  if (scaling.type == config::RopeScaling::none) return nullptr;
  return {{"type", config::name_of(scaling.type)},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_max_seq_len", scaling.original_max_seq_len}};
}

Json json_of(std::int64_t value) { return value; }
Json json_of(double value) { return value; }
Json json_of(bool value) { return value; }
Json json_of(std::string_view value) { return value; }

Json model_json(const config::ModelConfig& model) {
  Json json;
  for (const auto& [name, value] : layout::shape_of(model))
    json[std::string(name)] = std::visit([](const auto& one) { return json_of(one); }, value);
  return json;
}

Json state_json(const Run& run) {
  const optim::StepReport report = run.optimizer->report();
  return {{"format", 1},
          {"step", run.progress.step},
          {"tokens", run.progress.trained},
          {"skipped_steps", run.progress.skipped},
          {"best", run.progress.best ? Json{{"step", run.progress.best->step}, {"eval_loss", run.progress.best->loss}} : Json(nullptr)},
          {"data",
           {{"epoch", run.progress.position.epoch},
            {"sample", run.progress.position.sample},
            {"fingerprint", run.task->training()->fingerprint()},
            {"seed", run.config.trainer.seed},
            {"seq_len", run.task->training()->sample_size()}}},
          {"optimizer",
           {{"method", config::name_of(run.config.trainer.optimizer)},
            {"updates", report.updates},
            {"loss_scale", report.loss_scale},
            {"good_steps", run.optimizer->good_steps()}}},
          {"batch", {{"global_batch_size", run.batch.global_batch_size}, {"ranks", run.mesh->everyone().size()}}},
          {"schedule_offset", run.progress.schedule_offset},
          {"adapters", adapters_json(run)},
          {"model", model_json(run.config.model)}};
}

}  // namespace

std::filesystem::path checkpoints_folder(const config::RunConfig& config, const journal::RunFolder& folder) {
  return config.trainer.checkpoint_dir.empty() ? folder.checkpoints() : std::filesystem::path(config.trainer.checkpoint_dir);
}

std::filesystem::path newest_checkpoint(std::string_view room, const config::RunConfig& config, const journal::RunFolder& folder) {
  std::vector<std::string> skipped;
  const auto newest = checkpoint::newest_whole(checkpoints_folder(config, folder), &skipped);
  for (const std::string& line : skipped) base::log_warning("{}", line);
  if (!newest) throw base::checkpoint_error(room, "{} has no whole checkpoint yet.", folder.root.string());
  return *newest;
}

checkpoint::Contents contents_of(const Run& run) {
  checkpoint::Contents contents;
  contents.sharded = run.replica.exchange != nullptr;
  // Of the replicas of a shard the first one writes it.
  const bool writes = !contents.sharded || run.mesh->along(layout::Axis::replicate).rank() == 0;
  const auto written = [&](const at::Tensor& view) { return writes ? view : view.view({-1}).narrow(0, 0, 0); };
  std::map<std::string, int> units;  // by the names of their tensors
  const std::span<const model::HeldSlice> saves = run.replica.store->saves();
  for (int index = 0; index < static_cast<int>(saves.size()); ++index) {  // in forward order
    const model::HeldSlice& slice = saves[saves.size() - 1 - static_cast<std::size_t>(index)];
    for (auto& [name, view, shape, begin] : run.replica.store->unit(slice.unit).pieces_in(slice.exact)) {
      contents.model.push_back({name, written(view), index, shape, begin});
      units[name] = index;
    }
  }
  for (auto& [name, view, shape, begin] : run.optimizer->named_state()) {
    contents.optimizer.push_back({name, written(view), units.at(name.substr(name.find('.') + 1)), shape, begin});  // "<state>.<name>"
  }
  contents.state_json = state_json(run).dump(2);
  return contents;
}

Found find_checkpoint(const comm::Group& group, const config::RunConfig& config, const journal::RunFolder& folder) {
  const std::string& asked = config.checkpoint.resume;
  std::filesystem::path where = checkpoints_folder(config, folder);
  if (group.rank() == 0) journal::finish_abandoning(base::real_files(), where, folder.metrics());
  if (asked.empty()) return {};
  bool newest = true;
  if (asked != "auto") {
    where = asked;
    newest = !std::filesystem::exists(where / "manifest.json");
    if (newest && std::filesystem::exists(where / "checkpoints")) where /= "checkpoints";
  }
  if (!newest) {
    where = std::filesystem::canonical(where);  // `best`, or a slash at its end: the run's own checkpoint by another name
    verify_together(group, where);
    return {where};
  }
  Found found = newest_whole_together(group, where);
  for (const std::string& line : found.skipped) base::log_warning("resume: {}", line);
  if (found.checkpoint) return found;
  if (asked != "auto") {
    if (!where.has_filename()) where = where.parent_path();  // a slash at its end
    const auto aside = journal::find_abandoned(where.parent_path(), where.filename().string());
    throw base::checkpoint_error("resume", "there is no whole checkpoint in {}. Give a run folder or a step-NNNNNN folder to --resume{}.",
                                 where.string(), aside ? fmt::format("; this one was set aside as {}", aside->string()) : "");
  }
  return found;
}

namespace {

base::UserError damaged_state(const std::filesystem::path& folder, std::string_view why) {
  return base::checkpoint_error("resume", "{} is damaged: {}. Resume from another checkpoint.", (folder / "state.json").string(), why);
}

Json state_of(const checkpoint::Reader& reader) {
  try {
    Json state = base::parse_json(reader.state_json());
    for (const char* part : {"model", "optimizer", "data"}) {
      if (!state.is_object() || !state.contains(part) || !state[part].is_object())
        throw damaged_state(reader.folder(), fmt::format("it has no {}", part));
    }
    return state;
  } catch (const base::JsonError& error) {
    throw damaged_state(reader.folder(), error.what());
  }
}

}  // namespace

void check_same_model(const checkpoint::Reader& reader, const config::ModelConfig& model) {
  const Json saved = state_of(reader).at("model");
  std::vector<std::string> differences;
  const Json here = model_json(model);
  for (const auto& [key, value] : here.items()) {
    if (key == "sliding_window" && !saved.contains(key)) continue;                                   // older checkpoints do not say
    const Json there = saved.contains(key) ? saved[key] : key == "norms" ? Json("before") : Json();  // where they were before
    if (there != value)
      differences.push_back(fmt::format("model.{} is {} there and {} here", key, there.is_null() ? "not set" : there.dump(), value.dump()));
  }
  if (differences.empty()) return;
  throw base::checkpoint_error("resume", "the checkpoint {} is of another model: {}. Use the config it was trained with ({}).",
                               reader.folder().string(), base::join(differences, "; "),
                               (reader.folder().parent_path().parent_path() / "config.yaml").string());
}

namespace {

// Those that hold the same shards as this rank. Whole units each rank reads by itself: on one machine from one copy in memory.
const comm::Group* readers_of(const parallel::Replica& replica) {
  return replica.exchange != nullptr ? replica.store->replicas() : nullptr;
}

}  // namespace

void restore_weights(TensorReading& reading, const parallel::Replica& replica) {
  // Frozen weights are not in a checkpoint: they come from where they came from first.
  const auto stored_units = replica.adapters.empty() ? replica.in_forward_order() : replica.trained_in_forward_order();
  for (const model::Unit* unit : stored_units) {
    reading.read("model", unit->pieces_in(unit->exact()));
    unit->refresh_weights();
  }
}

namespace {

void check_same_optimizer(const Json& saved, config::Optimizer asked, const std::filesystem::path& folder) {
  const std::string there = saved.value("method", "adamw");  // checkpoints of the first format know no other
  const std::string_view here = config::name_of(asked);
  if (there == here) return;
  throw base::checkpoint_error(
      "resume",
      "the checkpoint {} holds the states of trainer.optimizer = {}, this run asks for {}, which cannot go on from "
      "them. Resume with --optimizer {}, or start a new run.",
      folder.string(), there, here, there);
}

}  // namespace

Restored restore(Run& run, const std::filesystem::path& folder) try {
  Restored restored;
  const checkpoint::Reader reader(folder);
  check_same_model(reader, run.config.model);
  const Json state = state_of(reader);
  if (run.config.model.sliding_window > 0 && !state.at("model").contains("sliding_window"))
    restored.notes.push_back(fmt::format("{} was written by an older version: model.sliding_window is not compared", folder.string()));
  check_same_adapters(state.value("adapters", Json()), run, folder, restored.notes);
  check_same_optimizer(state.at("optimizer"), run.config.trainer.optimizer, folder);
  const Json& data = state.at("data");
  const bool same_data = data.at("fingerprint") == run.task->training()->fingerprint() && data.at("seed") == run.config.trainer.seed &&
                         data.at("seq_len") == run.task->training()->sample_size();
  if (!same_data && !run.config.data.allow_new_data) {
    throw base::checkpoint_error(
        "resume",
        "the checkpoint {} was trained on other data (content {}, seed {}, sequences of {}), not on this (content {}, seed {}, "
        "sequences of {}). Resume with the same data, or add --allow-new-data to start the new data from its beginning.",
        folder.string(), data.at("fingerprint").get<std::string>(), data.at("seed").dump(), data.at("seq_len").dump(),
        run.task->training()->fingerprint(), run.config.trainer.seed, run.task->training()->sample_size());
  }
  TensorReading reading(reader, readers_of(run.replica));
  restore_weights(reading, run.replica);
  reading.read("optimizer", run.optimizer->named_state());
  base::log_info("[resume] read {} bytes of {} in {}", reader.bytes_read(), reader.bytes_held(), folder.string());
  const Json& optimizer = state.at("optimizer");
  run.progress.step = state.at("step");
  run.progress.trained = state.at("tokens");
  run.progress.skipped = state.at("skipped_steps");
  // Another validation split would make its losses incomparable; one that is no longer there can be bettered by any.
  if (const Json best = state.value("best", Json(nullptr));
      same_data && best.is_object() && is_own(run, folder) &&
      std::filesystem::exists(journal::checkpoint_folder(folder.parent_path(), best.at("step"))))
    run.progress.best = {.step = best.at("step"), .loss = best.at("eval_loss")};
  run.optimizer->restore_control(optimizer.at("updates"), optimizer.at("loss_scale"), optimizer.at("good_steps"), run.progress.skipped);
  restored.same_data = same_data;
  restored.global_batch_size = state.at("batch").at("global_batch_size");
  if (same_data) {
    run.progress.position = {.epoch = data.at("epoch"), .sample = data.at("sample")};
    run.progress.schedule_offset = state.value("schedule_offset", std::int64_t{0});
  }
  return restored;
} catch (const Json::exception& error) {
  throw damaged_state(folder, error.what());
}

}  // namespace lockstep::train
