// A job whose first rank talks to whoever talks to this process.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "base/file/temporary_folder.h"
#include "front/app/text/text_ranks.h"
#include "front/job/meeting.h"
#include "front/show/signals.h"

namespace lockstep::app {
namespace {

// Knows the first rank, which alone ends an answer.
class FirstRank : public launch::Observer {
 public:
  // False where it has not started yet.
  bool interrupt() const {
    const pid_t pid = pid_;
    return pid != 0 && ::kill(pid, SIGINT) == 0;
  }
  void rank_started(const launch::LocalRank& rank, pid_t pid) override {
    if (rank.rank == 0) pid_ = pid;
  }
  void tick(std::span<const journal::PageView>) override {}
  void say(std::string_view line) override { fmt::print(stderr, "{}\n", line); }

 private:
  std::atomic<pid_t> pid_ = 0;
};

}  // namespace

int chat_together(const TextWish& wish, const RankWish& ranks) {
  const launch::Environment environment = launch::process_environment();
  job::Setup setup = set_up_ranks("chat", wish, ranks, environment);
  const launch::StopWish stop;
  FirstRank first;
  const show::Signals signals([&](int signal) {
    if (signal != SIGINT || !first.interrupt()) stop.ask(signal);
  });
  launch::sweep_old_pages();
  launch::Job& job = setup.job;
  const base::TemporaryFolder folder = base::TemporaryFolder::fresh("lockstep-chat");
  job.folder.root = folder.path();
  job.arguments.insert(job.arguments.begin(), "chat");
  job.input = STDIN_FILENO;
  job.output = STDOUT_FILENO;
  job::Meeting meeting(setup, environment, {}, {});
  for (const std::string& note : setup.plan.notes) first.say("note: " + note);
  if (const auto ended = meeting.begin(0, first, stop)) return 128 + SIGINT;
  const launch::Outcome outcome = launch::run_job(job, first, stop);
  if (outcome.kind == launch::Outcome::Kind::complete) return 0;
  if (outcome.kind != launch::Outcome::Kind::failed) return 128 + (outcome.signal != 0 ? outcome.signal : SIGTERM);
  fmt::print(stderr, "{}", outcome.report.text);
  return outcome.report.exit_code;
}

}  // namespace lockstep::app
