// Steps until the end: writes metrics, evaluates, saves, samples, stops when asked to.
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "layout/memory/step_memory.h"
#include "rank/train/evaluate.h"
#include "rank/train/export.h"
#include "rank/train/memory/full_memory.h"
#include "rank/train/step/moment.h"
#include "rank/train/watch/profile.h"
#include "rank/train/watch/step_window.h"
#include "rank/train/samples.h"
#include "rank/train/resume/state.h"
#include "rank/train/watch/summary.h"
#include "rank/train/train_step.h"

namespace lockstep::train {
namespace {

using journal::Wish;

// A step's numbers on their way to the host. On a GPU they are read one step late, so that the device never waits for us.
class Reading {
 public:
  Reading(StepOutcome outcome, at::Device device) : outcome_(std::move(outcome)), host_(copy_out(outcome_, device)), end_(device) {}

  const StepOutcome& outcome() const { return outcome_; }
  const Moment& end() const { return end_; }
  // Blocks until the device has got this far. The step's totals, to be read by Totals::read().
  std::span<const double> numbers() const {
    end_.wait();
    return {host_.const_data_ptr<double>(), static_cast<std::size_t>(outcome_.totals.numel())};
  }
  optim::StepReport update() const {
    return optim::Optimizer::report_of(host_.narrow(0, outcome_.totals.numel(), outcome_.control.numel()));
  }

 private:
  static at::Tensor copy_out(const StepOutcome& outcome, at::Device device) {
    const at::Tensor numbers = at::cat({outcome.totals, outcome.control});
    if (device.is_cpu()) return numbers;
    return at::empty(numbers.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(true)).copy_(numbers, /*non_blocking=*/true);
  }

  StepOutcome outcome_;
  at::Tensor host_;
  Moment end_;
};

double megabytes(const checkpoint::Contents& contents) {
  double bytes = 0;
  for (const auto* list : {&contents.model, &contents.optimizer}) {
    for (const checkpoint::NamedTensor& tensor : *list) bytes += static_cast<double>(tensor.tensor.nbytes());
  }
  return bytes * 1e-6;
}

class Loop {
 public:
  explicit Loop(Run& run) : run_(run), trainer_(run.config.trainer), summary_(run), last_end_(run.world->device()) {}

  void go() {
    while (run_.progress.step < run_.total_steps && !stopping_) {
      profile_.before_step(run_.progress.step + 1);
      Reading reading(train_step(run_), run_.world->device());
      const std::int64_t step = reading.outcome().step;
      if (run_.faults.drifts(step)) run_.replica.trained_in_forward_order().back()->exact()[0] += 1e-3;
      settle_pending();  // the step before, while this one runs
      pending_.emplace(std::move(reading));
      if (is_boundary(step) || wished_ != 0 || run_.world->device().is_cpu()) settle_pending();
      announce_checkpoint(/*wait=*/false);
      samples_.look();
      if (!stopping_ && due(run_.config.parallel.check_divergence, step)) verify_replicas();
      const bool improved = wanted(trainer_.eval_interval, step, Wish::evaluate) && run_evaluation();
      if (wanted(run_.config.monitor.sample_interval, step, Wish::sample)) write_sample();
      if (stopping_) break;
      if ((wanted(trainer_.save_interval, step, Wish::save) || improved) && step < run_.total_steps) save();
    }
    settle_pending();
    profile_.stop();
    finish();
  }

 private:
  static bool due(std::int64_t interval, std::int64_t step) { return interval > 0 && step % interval == 0; }
  // By the calendar, which a stop ends, or because someone asked for it.
  bool wanted(std::int64_t interval, std::int64_t step, Wish wish) const {
    return (!stopping_ && due(interval, step)) || journal::has(wished_, wish);
  }
  // The first step is told at once: queueing the second takes as long as a step, with graphs to record and plans to make.
  bool is_boundary(std::int64_t step) const {
    return step == started_at_ + 1 || step >= run_.total_steps || due(trainer_.eval_interval, step) || due(trainer_.save_interval, step) ||
           due(run_.config.parallel.check_divergence, step) || due(run_.config.monitor.sample_interval, step);
  }

  void settle_pending() {
    if (pending_) settle(*std::exchange(pending_, std::nullopt));
  }

  // Reads a finished step's numbers: metrics, skipped steps, wishes. The same on every rank.
  void settle(const Reading& reading) {
    const std::span<const double> numbers = reading.numbers();
    const model::Totals& totals = *run_.totals;
    const int ranks = run_.mesh->everyone().size();
    const optim::StepReport update = reading.update();
    const StepOutcome& outcome = reading.outcome();
    const double seconds = reading.end().seconds_since(std::exchange(last_end_, reading.end()));
    const double trained = totals.read(numbers, sum::trained);
    const double loss = trained > 0 ? totals.read(numbers, sum::loss) / trained : 0;
    run_.progress.trained += static_cast<std::int64_t>(trained);
    run_.progress.skipped = update.skipped_total;
    wished_ |= wishes_in(totals.read(numbers, sum::wishes));
    stopping_ = journal::has(wished_, Wish::stop);
    if (update.skipped_in_a_row > 0) report_skip(outcome, numbers, update.skipped_in_a_row);
    summary_.add(outcome.step, seconds, loss, trained);
    window_.add(seconds, trained);
    if (!run_.is_first() ||
        !(due(trainer_.log_interval, outcome.step) || outcome.step == 1 || outcome.step == run_.total_steps || stopping_))
      return;
    journal::StepLine line{.step = outcome.step,
                           .epoch = epochs(outcome.position),
                           .loss = loss,
                           .grad_norm = update.gradient_norm,
                           .learning_rate = outcome.learning_rate,
                           .counted = run_.task->counted(),
                           .trained = run_.progress.trained,
                           .data_seconds = outcome.data_seconds,
                           .communication_seconds = outcome.reduced.seconds_since(outcome.backward_done),
                           .skipped_steps = run_.progress.skipped};
    for (int rank = 0; rank < ranks; ++rank)
      line.memory_bytes.push_back(static_cast<std::int64_t>(totals.read(numbers, sum::peak_memory, rank)));
    window_.close(numbers, line);
    line.mfu = summary_.mfu(line.trained_per_second);
    if (run_.config.model.dtype == config::DType::f16) line.loss_scale = update.loss_scale;
    run_.metrics->write(line);
    write_scalars(line);
  }

  template <typename Line>
  void write_scalars(const Line& line) const {
    for (const auto& writer : run_.scalars) writer->write(line.step, journal::scalars_of(line));
  }

  double epochs(const data::Position& position) const {
    return static_cast<double>(position.epoch) +
           static_cast<double>(position.sample) / static_cast<double>(run_.task->training()->samples());
  }

  // A loss or gradient that is not finite: all ranks left the weights alone. Too many in a row end the run.
  void report_skip(const StepOutcome& outcome, std::span<const double> numbers, std::int64_t in_a_row) {
    std::vector<std::string> culprits;
    for (int rank = 0; rank < run_.mesh->everyone().size(); ++rank) {
      if (run_.totals->read(numbers, sum::not_finite, rank) > 0) culprits.push_back(std::to_string(rank));
    }
    const std::string reason =
        culprits.empty() ? "the gradient is not finite" : fmt::format("the loss of rank {} is not finite", base::join(culprits, ", "));
    if (run_.metrics) run_.metrics->write_event(nlohmann::json{{"event", "skipped"}, {"step", outcome.step}, {"reason", reason}}.dump());
    if (in_a_row < trainer_.max_skipped_steps) return;
    throw base::run_error(
        "train",
        "step {}: {} steps in a row were skipped because {}. Samples of the last one: {}. Lower trainer.learning_rate, raise "
        "trainer.warmup_steps, or look at those samples; trainer.max_skipped_steps is {}.",
        outcome.step, in_a_row, reason, samples_by_rank(outcome.samples, culprits), trainer_.max_skipped_steps);
  }

  // "rank 1: 17, 4, 92". Collective: every rank tells its samples, so that each can name the culprits'.
  std::string samples_by_rank(std::vector<std::int64_t> mine, std::vector<std::string> culprits) const {
    const comm::Group& ranks = run_.mesh->everyone();
    const auto count = static_cast<std::int64_t>(mine.size());
    const at::Tensor all = at::empty({ranks.size(), count}, at::TensorOptions().dtype(at::kLong).device(ranks.device()));
    ranks.all_gather(all, at::from_blob(mine.data(), {count}, at::kLong).to(ranks.device()), "samples of a bad step").wait();
    const at::Tensor rows = all.cpu();
    if (culprits.empty()) {
      for (int rank = 0; rank < ranks.size(); ++rank) culprits.push_back(std::to_string(rank));
    }
    std::vector<std::string> lines;
    for (const std::string& culprit : culprits) {
      const std::int64_t* row = rows.const_data_ptr<std::int64_t>() + std::stoll(culprit) * count;
      std::vector<std::string> words;
      for (std::int64_t i = 0; i < count && words.size() < 32; ++i) {
        if (row[i] >= 0) words.push_back(std::to_string(row[i]));
      }
      lines.push_back(fmt::format("rank {}: {}", culprit, base::join(words, ", ")));
    }
    return base::join(lines, "; ");
  }

  // Collective: for a forward beside recorded micro-steps.
  void make_room() {
    const std::int64_t rows = run_.batch.batch_size * run_.config.data.seq_len;
    run_.micro_steps->make_room(run_.mesh->everyone(), layout::evaluation_bytes(run_.config, rows));
  }

  // True where this is the best model so far, to be kept. The same on every rank.
  bool run_evaluation() {
    if (!run_.task->validation()) {
      acknowledge(
          Wish::evaluate,
          {{"done", false}, {"reason", "the run has no validation data: start it with data.validation_path or data.validation_fraction"}});
      return false;
    }
    make_room();
    const journal::EvalLine line = evaluate(run_);
    summary_.add_evaluation(line);
    if (run_.metrics) run_.metrics->write(line);
    write_scalars(line);
    evaluated_at_ = line.step;
    acknowledge(Wish::evaluate, {{"done", true}, {"eval_loss", line.loss}, {"eval_" + line.counted, line.trained}});
    last_end_ = Moment(run_.world->device());
    auto& best = run_.progress.best;
    if (!trainer_.keep_best || line.trained == 0 || !std::isfinite(line.loss) || (best && best->loss <= line.loss)) return false;
    best = {.step = line.step, .loss = line.loss};
    return true;
  }

  // Collective. Each rank writes its share of the tensors: what is saved is one model only if all hold the same.
  void verify_replicas() const { parallel::verify_equal(run_.same_weights(), run_.replica, run_.progress.step); }

  void save() {
    run_.time->enter(journal::Part::checkpoint);
    verify_replicas();
    run_.page->set_phase(journal::Phase::saving, run_.progress.step);
    run_.faults.at(journal::Phase::saving, run_.progress.step, run_.mesh->everyone());
    announce_checkpoint(/*wait=*/true);
    const checkpoint::Contents contents = contents_of(run_);
    run_.saver->begin(run_.progress.step, contents, best_step());
    unannounced_ = run_.progress.step;
    saves_for_ = take(Wish::save);
    // Writing a small checkpoint behind training gains nothing, and until it is whole a crash would lose the interval before it too.
    announce_checkpoint(/*wait=*/megabytes(contents) < static_cast<double>(run_.config.checkpoint.wait_below_mb));
    run_.mesh->everyone().meet("saving a checkpoint");  // a disk may keep one rank far longer than the others
    run_.time->enter(journal::Part::other);
    last_end_ = Moment(run_.world->device());
  }

  // Says that a checkpoint is whole, or why it is not: training goes on either way.
  void announce_checkpoint(bool wait) {
    if (!unannounced_ || (!wait && run_.saver->busy())) return;
    const std::int64_t step = *std::exchange(unannounced_, std::nullopt);
    try {
      run_.saver->wait();
    } catch (const base::UserError& error) {
      answer(std::exchange(saves_for_, {}), step, {{"done", false}, {"reason", error.what()}});
      return run_.note(fmt::format("the checkpoint of step {} was not saved, training goes on: {}", step, error.what()));
    }
    if (run_.metrics)
      run_.metrics->write_event(nlohmann::json{{"event", "checkpoint"}, {"step", step}, {"path", checkpoint_path(step).string()}}.dump());
    answer(std::exchange(saves_for_, {}), step, {{"done", true}, {"checkpoint", checkpoint_path(step).string()}});
  }

  std::optional<std::int64_t> best_step() const { return run_.progress.best ? std::optional(run_.progress.best->step) : std::nullopt; }

  std::filesystem::path checkpoint_path(std::int64_t step) const {
    return journal::checkpoint_folder(checkpoints_folder(run_.config, run_.folder), step);
  }

  void write_sample() {
    run_.page->set_phase(journal::Phase::sampling, run_.progress.step);
    make_room();
    samples_.write(run_.mesh->everyone());
    sampled_at_ = run_.progress.step;
    if (samples_.can_write())
      acknowledge(Wish::sample, {{"done", true}});
    else
      acknowledge(Wish::sample, {{"done", false}, {"reason", "there is no vocabulary to write with, or monitor.sample_tokens is 0"}});
    last_end_ = Moment(run_.world->device());
  }

  // The last checkpoint is what the run was for: not getting it is an error.
  void save_last() {
    verify_replicas();
    run_.page->set_phase(journal::Phase::saving, run_.progress.step);
    announce_checkpoint(/*wait=*/true);
    run_.saver->begin(run_.progress.step, contents_of(run_), best_step());
    run_.saver->wait();
    unannounced_ = run_.progress.step;
    saves_for_ = take(Wish::save);
    announce_checkpoint(/*wait=*/true);
  }

  // Wishes of the control file that are carried out now; rank 0 knows whose they are.
  std::vector<journal::Asked> take(Wish wish) {
    wished_ &= ~static_cast<unsigned>(wish);
    return run_.control ? run_.control->take(static_cast<unsigned>(wish)) : std::vector<journal::Asked>();
  }
  void acknowledge(Wish wish, const nlohmann::json& what) { answer(take(wish), run_.progress.step, what); }
  void answer(const std::vector<journal::Asked>& asked, std::int64_t step, const nlohmann::json& what) const {
    for (const journal::Asked& one : asked) {
      nlohmann::json line = {{"event", "wish"}, {"id", one.id}, {"wish", journal::name_of(one.wish)}, {"step", step}};
      line.update(what);
      run_.metrics->write_event(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
  }

  // A fine-tune ends with what other programs load: the same kind of folder that it began with.
  void write_model() {
    const config::RunConfig& config = run_.config;
    if (!config.checkpoint.export_at_end) return;
    if (config.lora.enabled) {
      if (!run_.is_first()) return;
      run_.page->set_phase(journal::Phase::saving, run_.progress.step);
      return run_.note(fmt::format("the adapter is in {}, as a PEFT folder", export_adapter(run_).string()));
    }
    if (config.model.path.empty()) return;
    run_.page->set_phase(journal::Phase::saving, run_.progress.step);
    const std::filesystem::path folder = export_model(run_);
    if (run_.is_first()) run_.note(fmt::format("the model is in {}, as a Hugging Face folder", folder.string()));
  }

  void finish() {
    if (!stopping_) {
      if (!due(trainer_.eval_interval, run_.progress.step) && evaluated_at_ != run_.progress.step) run_evaluation();
      if (!due(run_.config.monitor.sample_interval, run_.progress.step) && sampled_at_ != run_.progress.step) write_sample();
    }
    const bool saves = run_.config.checkpoint.save_at_end || stopping_ || journal::has(wished_, Wish::save);
    if (saves) save_last();
    if (!stopping_) write_model();
    run_.page->set_phase(journal::Phase::finishing, run_.progress.step);
    run_.faults.at(journal::Phase::finishing, run_.progress.step, run_.mesh->everyone());
    if (run_.metrics) {
      write_summary();
      if (saves) acknowledge(Wish::stop, {{"done", true}, {"checkpoint", checkpoint_path(run_.progress.step).string()}});
      answer(run_.control->take_all(), run_.progress.step, {{"done", false}, {"reason", "the run came to its end before"}});
      run_.metrics->write_event(
          nlohmann::json{{"event", "finished"},
                         {"step", run_.progress.step},
                         {"reason", stopping_ ? "stopped" : "complete"},
                         {"checkpoint", saves ? nlohmann::json(checkpoint_path(run_.progress.step).string()) : nlohmann::json(nullptr)}}
              .dump());
      if (const std::int64_t lost = run_.metrics->finish(); lost > 0)
        run_.page->set_notice(fmt::format("the last {} lines of {} could not be written", lost, run_.folder.metrics().string()));
    }
    run_.mesh->everyone().meet("the end of the run");
  }

  // What was trained is saved by now: a report that finds no room is no reason to call the run failed.
  void write_summary() const {
    try {
      summary_.write();
    } catch (const base::UserError& error) {
      run_.note(fmt::format("{} was not written: {}", run_.folder.summary().string(), error.what()));
    }
  }

  Run& run_;
  const config::TrainerConfig& trainer_;
  const std::int64_t started_at_ = run_.progress.step;
  Summary summary_;
  Samples samples_{run_};
  Profile profile_{run_.config.monitor.profile_steps, run_.folder.root / "profile", run_.mesh->everyone().rank(), run_.world->device()};
  Moment last_end_;                          // of the last step, or of what came after it: steps are timed from there
  std::optional<Reading> pending_;           // the last step, not settled yet
  std::optional<std::int64_t> unannounced_;  // step of a checkpoint that may still be being written
  journal::Wishes wished_ = 0;               // and not carried out yet; the same on every rank
  std::vector<journal::Asked> saves_for_;    // whose wish `unannounced_` is; rank 0
  std::int64_t evaluated_at_ = -1, sampled_at_ = -1;
  bool stopping_ = false;
  StepWindow window_{run_};
};

}  // namespace

void train(Run& run) {
  try {
    Loop(run).go();
  } catch (const c10::Error& error) {
    if (const auto full = full_memory(error, &run)) throw *full;
    throw;
  }
}

}  // namespace lockstep::train
