// The loop that watches a running job: ends of workers, pages, signals.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/descriptor.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "base/text.h"
#include "front/launch/launch.h"
#include "front/launch/report/out_of_memory.h"
#include "front/launch/pages.h"
#include "front/launch/watch.h"
#include "journal/tail.h"

namespace lockstep::launch {
namespace {

using journal::PageView;
using journal::Phase;

constexpr double tick_seconds = 0.1;
// A job must have ended and been explained within 5 s of the first death. A cause is often there at once; where only consequences are
// seen so far (a closed connection), the rank that caused them may need a moment to die, writing a core file for example.
constexpr double grace_with_cause_s = 0.3;
constexpr double grace_without_cause_s = 2.0;
constexpr double time_to_die_s = 2.5;
constexpr double signals_of_one_wish_s = 2.0;
constexpr double asleep_s = 2.0;  // between two ticks: this process did not run
constexpr double patience_with_judge_s = 15;
constexpr double news_may_be_late_s = 1.5;
constexpr int log_lines_read = 200;
constexpr std::size_t log_lines_shown = 12;
constexpr std::string_view start_mark = "---- started ";

class Supervisor {
 public:
  Supervisor(const Job& job, Observer& observer, const StopWish& stop, Peers* peers)
      : job_(job), observer_(observer), stop_(stop), peers_(peers), pages_(job.id, ranks_of(job), job.foreign) {}

  Outcome run() {
    start();
    for (;;) {
      if (const int signal = stop_.wait(tick_seconds, ends_to_come()); signal != 0) steer(signal);
      if (const auto reason = job_.must_end ? job_.must_end() : std::nullopt) return end_for(*reason);
      reap();
      look();
      if (ended_at_once_ != 0) return end_at_once();
      if (news_.verdict) return obey(*news_.verdict);
      observer_.tick(all_pages_);
      if (waits_for_verdict()) continue;
      if (stopped_before_it_listened()) return end(Outcome::Kind::stopped);
      watch_stall();
      if (in_trouble() && grace_is_over()) return fail();
      if (!in_trouble() && all_ended()) return end(stop_signal_ != 0 ? Outcome::Kind::stopped : Outcome::Kind::complete);
    }
  }

 private:
  struct Worker {
    LocalRank rank;
    Child child;
    std::int64_t ended_ns = 0;
  };

  static std::vector<int> ranks_of(const Job& job) {
    std::vector<int> ranks;
    for (const auto& rank : job.ranks) ranks.push_back(rank.rank);
    return ranks;
  }

  void start() {
    base::real_files().create_directories(job_.folder.rank_logs());
    for (const auto& rank : job_.ranks) {
      const auto log = job_.folder.rank_log(rank.rank);
      mark_start(log);
      Child child = Child::start({.program = job_.worker,
                                  .arguments = worker_arguments(),
                                  .environment = worker_environment(job_, rank),
                                  .log = log,
                                  .input = rank.rank == 0 ? job_.input : -1,
                                  .output = rank.rank == 0 ? job_.output : -1,
                                  .keeps = rank.rank == 0 ? job_.store_socket : -1});
      observer_.rank_started(rank, child.pid());
      workers_.push_back({rank, std::move(child)});
    }
  }

  std::vector<std::string> worker_arguments() const {
    if (!job_.arguments.empty()) return job_.arguments;
    return {"train", "--config", job_.config.string(), "--run", job_.folder.root.string()};
  }

  // A report quotes the log only from here on.
  static void mark_start(const std::filesystem::path& log) {
    const base::Descriptor file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!file.open())
      throw base::machine_error("launch", "cannot write the log {}: {}. Choose a folder you may write to with --output.", log.string(),
                                base::why_refused(log, errno, base::Access::write));
    const std::string line = fmt::format("{}{} ----\n", start_mark, base::utc_time());
    [[maybe_unused]] const auto written = ::write(file.number(), line.data(), line.size());
  }

  // Of the workers that still run.
  std::vector<int> ends_to_come() const {
    std::vector<int> ends;
    for (const Worker& worker : workers_) {
      if (worker.child.running()) ends.push_back(worker.child.end_descriptor());
    }
    return ends;
  }

  void steer(int signal) {
    if (stop_signal_ == 0) {
      finish(signal, /*asked_elsewhere=*/false);
      if (peers_ != nullptr) peers_->wish_to_stop(signal, false);
      return;
    }
    // Launchers and terminals may both pass on one wish, each with its own signal.
    if (signal != stop_signal_ && base::seconds_since(stop_ns_) < signals_of_one_wish_s) return;
    ended_at_once_ = signal;
    if (peers_ != nullptr) peers_->wish_to_stop(signal, true);
  }

  void finish(int signal, bool asked_elsewhere) {
    stop_signal_ = signal;
    stop_ns_ = base::now_ns();
    observer_.stopping(asked_elsewhere);
    for (auto& worker : workers_) worker.child.send(SIGTERM);
  }

  // Takes in how all ranks stand, those of other machines too where this one judges.
  void look() {
    pages_.read();
    all_pages_ = pages_.last();
    if (peers_ == nullptr) return;
    news_ = peers_->exchange(standing());
    all_pages_.insert(all_pages_.end(), news_.others.pages.begin(), news_.others.pages.end());
    if (!news_.lost.empty()) failure_.lost = news_.lost;
    if (news_.stop_signal != 0 && stop_signal_ == 0) finish(news_.stop_signal, /*asked_elsewhere=*/true);
    if (news_.at_once) ended_at_once_ = news_.stop_signal;
  }

  Standing standing() {
    Standing mine{.pages = pages_.last(), .ends = {}, .all_ended = all_ended_here()};
    for (RankEnd& rank : ends_here()) {
      if (!rank.end && !(rank.page && !rank.page->failure.empty())) continue;
      if (rank.end && rank.end->signal == SIGKILL) rank.out_of_memory = out_of_memory_.evidence_against(worker_of(rank.rank)->child.pid());
      mine.ends.push_back(std::move(rank));
    }
    return mine;
  }

  // Elsewhere machine 0 judges, unless it is gone or says nothing about ranks that have failed here.
  bool waits_for_verdict() {
    if (peers_ == nullptr || peers_->judges() || !failure_.lost.empty()) return false;
    if (first_cause(ends_here()) && unjudged_ns_ == 0) unjudged_ns_ = base::now_ns();
    return unjudged_ns_ == 0 || base::seconds_since(unjudged_ns_) < patience_with_judge_s;
  }

  Outcome obey(const Outcome& verdict) {
    kill_all();
    observer_.tick(all_pages_);
    return verdict;
  }

  void reap() {
    for (auto& worker : workers_) {
      if (worker.child.running() && worker.child.poll()) worker.ended_ns = base::now_ns();
    }
  }

  bool all_ended() const { return all_ended_here() && (peers_ == nullptr || !peers_->judges() || news_.others.all_ended); }

  bool all_ended_here() const {
    return std::none_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.child.running(); });
  }

  // SIGTERM came before the worker could take it as a wish: nothing was trained, nothing is lost.
  bool stopped_before_it_listened() const {
    if (stop_signal_ == 0 || trained()) return false;
    const auto asked_to_end = [](const std::optional<End>& end) { return end && end->signal == SIGTERM; };
    return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) { return asked_to_end(worker.child.end()); }) ||
           std::any_of(news_.others.ends.begin(), news_.others.ends.end(), [&](const RankEnd& rank) { return asked_to_end(rank.end); });
  }

  bool trained() const {
    return std::any_of(all_pages_.begin(), all_pages_.end(), [](const PageView& page) { return page.step > 0; });
  }

  void watch_stall() {
    const double awake_s = seconds_awake();
    if (trouble_ns_ != 0) return;
    auto stall = find_stall(all_pages_, base::now_ns(), std::min(job_.stall_seconds, job_.stall_abort_seconds));
    if (stall) stall->seconds = std::min(stall->seconds, awake_s);
    if (!stall || stall->seconds < std::min(job_.stall_seconds, job_.stall_abort_seconds)) {
      if (stall_said_) observer_.moves_again();
      stall_said_ = false;
      stall_seen_ns_ = 0;
      return;
    }
    // What other machines tell is a moment old: ranks may have moved since.
    if (stall_seen_ns_ == 0) stall_seen_ns_ = base::now_ns();
    if (peers_ != nullptr && base::seconds_since(stall_seen_ns_) < news_may_be_late_s) return;
    if (!stall_said_) {
      observer_.stalled(*stall, job_.stall_abort_seconds);
      stall_said_ = true;
    }
    if (stall->seconds < job_.stall_abort_seconds || !stall->ends_job) return;
    failure_.stall = stall;
  }

  // Since this process was last stopped itself, with its ranks perhaps, as a scheduler's suspend does: what stood still then is no stall.
  double seconds_awake() {
    const std::int64_t before = std::exchange(watched_ns_, base::now_ns());
    if (before == 0 || static_cast<double>(watched_ns_ - before) * 1e-9 > asleep_s) awake_ns_ = watched_ns_;
    return base::seconds_since(awake_ns_);
  }

  // True from the moment on when the job cannot end well.
  bool in_trouble() {
    if (trouble_ns_ != 0) return true;
    if (const auto mismatch = find_mismatch(all_pages_)) failure_.mismatch = mismatch->text;
    bool trouble = failure_.stall || !failure_.lost.empty() || !failure_.mismatch.empty() || first_cause(ends()).has_value();
    const bool of_ranks_alone = !failure_.stall && failure_.lost.empty() && failure_.mismatch.empty();
    if (trouble && of_ranks_alone && only_early_leavers()) trouble = !all_ended();
    if (trouble) trouble_ns_ = base::now_ns();
    return trouble;
  }

  // A rank that ended with code 0 and no last word is a failure only while others are still at work.
  bool only_early_leavers() {
    const auto all = ends();
    return std::all_of(all.begin(), all.end(), [](const RankEnd& rank) { return !rank.end || rank.end->clean(); }) &&
           std::all_of(all.begin(), all.end(), [](const RankEnd& rank) { return !rank.page || rank.page->failure.empty(); });
  }

  bool grace_is_over() {
    const double waited = base::seconds_since(trouble_ns_);
    if (failure_.stall || all_ended() || waited > grace_without_cause_s) return true;
    if (!failure_.lost.empty() && waited > grace_with_cause_s) return true;
    const auto all = ends();
    const auto cause = first_cause(all);
    return cause && !is_consequence(all[*cause]) && waited > grace_with_cause_s;
  }

  // How every rank stands. Others' ranks of a foreign job count as ended when their process is gone.
  std::vector<RankEnd> ends() {
    std::vector<RankEnd> all = ends_here();
    if (job_.foreign) append_others(all);
    all.insert(all.end(), news_.others.ends.begin(), news_.others.ends.end());
    return all;
  }

  std::vector<RankEnd> ends_here() {
    std::vector<RankEnd> all;
    for (auto& worker : workers_) {
      RankEnd rank;
      rank.rank = worker.rank.rank;
      rank.log_file = job_.folder.rank_log(rank.rank);
      rank.end = worker.child.end();
      rank.ended_ns = rank.end ? worker.ended_ns : base::now_ns();
      if (const PageView* page = pages_.of(rank.rank)) rank.page = *page;
      if (rank.end && !rank.end->clean()) rank.log = log_tail(rank.log_file);
      all.push_back(std::move(rank));
    }
    return all;
  }

  void append_others(std::vector<RankEnd>& all) {
    for (const PageView& page : pages_.last()) {
      const int number = static_cast<int>(page.rank);
      if (pages_.is_ours(number)) continue;
      RankEnd rank;
      rank.rank = number;
      rank.elsewhere = true;
      rank.page = page;
      rank.log_file = job_.folder.rank_log(number);
      rank.ended_ns = base::now_ns();
      const bool through = page.phase == Phase::done || page.phase == Phase::finishing;
      if (!page.alive && !through) {
        const auto [gone, fresh] = gone_ns_.try_emplace(number, base::now_ns());
        rank.ended_ns = gone->second;
        rank.end = End{page.failure_code != 0 ? page.failure_code : static_cast<int>(base::ExitCode::run), 0};
        rank.log = log_tail(rank.log_file);
      }
      all.push_back(std::move(rank));
    }
  }

  // Its last lines of this start that say something; LibTorch's frames are in the file for those who need them.
  static std::vector<std::string> log_tail(const std::filesystem::path& log) {
    std::vector<std::string> lines = journal::last_lines(log, log_lines_read);
    const auto start = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) { return line.starts_with(start_mark); });
    lines.erase(lines.begin(), start.base());
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("frame #") || base::trim(line).empty(); });
    if (lines.size() > log_lines_shown) lines.erase(lines.begin(), lines.end() - log_lines_shown);
    return lines;
  }

  void kill_all() {
    for (auto& worker : workers_) worker.child.kill_now();
    const std::int64_t begun = base::now_ns();
    for (auto& worker : workers_) worker.child.wait(std::max(0.0, time_to_die_s - base::seconds_since(begun)));
  }

  Outcome fail() {
    reap();
    look();
    failure_.world_size = job_.world_size;
    failure_.ranks = ends();  // before we end the others: their ends are our doing
    if (const auto mismatch = find_mismatch(all_pages_)) failure_.mismatch = mismatch->text;  // with those that came since
    for (auto& rank : failure_.ranks) {
      if (!rank.elsewhere) rank.dying = worker_of(rank.rank)->child.dying();
    }
    kill_all();
    for (auto& rank : failure_.ranks) {
      if (rank.dying) rank.end = worker_of(rank.rank)->child.end();  // what we sent came too late to matter
      if (rank.log.empty()) rank.log = log_tail(rank.log_file);
      if (rank.end && rank.end->signal == SIGKILL && !rank.elsewhere) {
        rank.out_of_memory = out_of_memory_.evidence_against(worker_of(rank.rank)->child.pid());
      }
    }
    observer_.tick(all_pages_);
    return {Outcome::Kind::failed, 0, explain(failure_), trained()};
  }

  const Worker* worker_of(int rank) const {
    return &*std::find_if(workers_.begin(), workers_.end(), [&](const Worker& worker) { return worker.rank.rank == rank; });
  }

  Outcome end(Outcome::Kind kind) {
    kill_all();
    observer_.tick(all_pages_);
    return {kind, 0, {}, trained()};
  }

  Outcome end_for(const std::string& reason) {
    kill_all();
    const Report report{.exit_code = static_cast<int>(base::ExitCode::run),
                        .rank = {},
                        .headline = reason,
                        .text = fmt::format("[launch] {}. This run has ended its ranks and writes nothing more.\n", reason)};
    return {Outcome::Kind::failed, 0, report, trained()};
  }

  Outcome end_at_once() {
    kill_all();
    return {Outcome::Kind::ended_at_once, ended_at_once_, {}, trained()};
  }

  const Job& job_;
  Observer& observer_;
  const StopWish& stop_;
  Peers* peers_;
  Peers::News news_;
  OutOfMemoryWatch out_of_memory_;
  Pages pages_;
  std::vector<PageView> all_pages_;
  std::vector<Worker> workers_;
  std::map<int, std::int64_t> gone_ns_;
  Failure failure_;
  std::int64_t trouble_ns_ = 0;
  std::int64_t unjudged_ns_ = 0;
  std::int64_t stall_seen_ns_ = 0;
  std::int64_t stop_ns_ = 0;
  std::int64_t watched_ns_ = 0, awake_ns_ = 0;
  int stop_signal_ = 0;
  int ended_at_once_ = 0;
  bool stall_said_ = false;
};

}  // namespace

Outcome run_job(const Job& job, Observer& observer, const StopWish& stop, Peers* peers) {
  return Supervisor(job, observer, stop, peers).run();
}

}  // namespace lockstep::launch
