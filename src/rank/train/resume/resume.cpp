// Decides what of an earlier start still counts.
#include "rank/train/resume/resume.h"

#include <algorithm>

#include "base/text.h"
#include "rank/checkpoint/manifest.h"
#include "journal/timeline.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::StepFolder;

double epochs_at(const Epochs& epochs, const data::Position& position) {
  return static_cast<double>(position.epoch) + static_cast<double>(position.sample) / static_cast<double>(epochs.samples);
}

}  // namespace

bool is_own(const Run& run, const fs::path& checkpoint) {
  std::error_code error;
  return fs::equivalent(checkpoint.parent_path(), checkpoints_folder(run.config, run.folder), error);
}

std::string end_timeline(const Run& run, const std::optional<fs::path>& checkpoint) {
  const fs::path folder = checkpoints_folder(run.config, run.folder);
  const bool own = checkpoint && is_own(run, *checkpoint);
  std::vector<std::string> names;
  for (const StepFolder& found : checkpoint::list_step_folders(folder)) {
    const std::string name = found.path.filename().string();
    if (found.state != StepFolder::State::whole && found.state != StepFolder::State::replaced) continue;
    if (own && (found.step < run.progress.step || name == checkpoint->filename())) continue;
    if (own && found.step == run.progress.step && found.state == StepFolder::State::replaced) continue;  // the saver removes it
    names.push_back(name);
  }
  if (names.empty()) return {};
  std::reverse(names.begin(), names.end());
  const std::string best = run.progress.best ? checkpoint::step_folder("", run.progress.best->step).string() : "";
  const journal::Abandoned gone = journal::abandon(base::real_files(), folder, names, best, run.folder.metrics());
  return fmt::format("the run goes on from {}: {} {} set aside in {}",
                     own          ? fmt::format("step {}", run.progress.step)
                     : checkpoint ? checkpoint->string()
                                  : "its beginning",
                     base::join(names, ", "), names.size() == 1 ? "is" : "are", gone.folder.string());
}

fs::path history_of(const Run& run, const std::optional<fs::path>& checkpoint) {
  return !checkpoint || is_own(run, *checkpoint) ? fs::path() : checkpoint->parent_path() / "metrics.jsonl";
}

std::vector<std::string> plan_steps(Run& run, const std::optional<Restored>& restored) {
  const config::TrainerConfig& trainer = run.config.trainer;
  const Epochs epochs{trainer.num_epochs, run.task->training()->samples(), run.batch.global_batch_size};
  Progress& progress = run.progress;
  const bool by_steps = trainer.max_steps > 0;
  const bool other_batch = restored && restored->same_data && restored->global_batch_size != epochs.global_batch;
  if (other_batch) progress.schedule_offset = epochs.steps_behind(progress.position) - progress.step;
  const std::int64_t left = epochs.steps_left(progress.position);
  run.total_steps = by_steps ? trainer.max_steps : progress.step + left;
  if (!restored || (!other_batch && restored->same_data)) return {};

  const std::string why =
      other_batch ? fmt::format("the global batch was {} samples and is {} now", restored->global_batch_size, epochs.global_batch)
                  : "the data is new and starts from its beginning";
  if (by_steps) {
    return {
        fmt::format("{}: training goes on at epoch {:.4g} and ends with step {}, as trainer.max_steps counts steps of any size; the "
                    "learning rate's schedule does too",
                    why, epochs_at(epochs, progress.position), run.total_steps)};
  }
  return {
      fmt::format("{}: training goes on at epoch {:.4g}, and {} more steps end trainer.num_epochs {:g} with step {}; the learning rate "
                  "goes on as at step {} of {}",
                  why, epochs_at(epochs, progress.position), left, trainer.num_epochs, run.total_steps,
                  progress.step + progress.schedule_offset, run.total_steps + progress.schedule_offset)};
}

}  // namespace lockstep::train
