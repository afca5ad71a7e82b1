// A folder, the meeting of machines, the job.
#include "front/job/errand.h"

#include <filesystem>

#include "base/files.h"
#include "front/job/identity.h"
#include "front/job/meeting.h"
#include "front/launch/libtorch.h"
#include "journal/tail.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;

// Passes the workers' result lines on as they come.
class PassThrough : public launch::Observer {
 public:
  PassThrough(const fs::path& result, const ErrandListener& listener) : tail_(result), listener_(listener) {}
  void tick(std::span<const journal::PageView>) override {
    for (const std::string& line : tail_.poll().lines) {
      if (listener_.result) listener_.result(line);
    }
  }
  void say(std::string_view line) override {
    if (listener_.say) listener_.say(line);
  }

 private:
  journal::Tail tail_;
  const ErrandListener& listener_;
};

}  // namespace

launch::Outcome run_errand(Setup& setup, const launch::Environment& environment, const Errand& errand, const ErrandListener& listener,
                           const launch::StopWish& stop) {
  launch::sweep_old_pages();
  launch::Job& job = setup.job;
  launch::use_own_worker(job, environment);
  job.stall_seconds = 120;  // a step of a large model on a CPU moves nothing for long
  job.stall_abort_seconds = 1200;
  job.folder.root = fs::temp_directory_path() / ("lockstep-" + errand.verb + "-" + job.id);
  base::real_files().create_directories(job.folder.root);
  job.config = job.folder.config();
  base::write_text_atomically(base::real_files(), job.config, config::to_yaml(setup.settings));
  const fs::path result = job.folder.root / "result";
  job.arguments = {errand.verb, "--config", job.config.string(), "--result", result.string()};
  job.arguments.insert(job.arguments.end(), errand.arguments.begin(), errand.arguments.end());

  PassThrough observer(result, listener);
  Meeting meeting(setup, environment, Meeting::is_needed(setup) ? identity_of(setup.settings.values, {}) : journal::Identity(), {});
  meeting.remark(errand.remark);
  if (!meeting.made_secret().empty()) observer.say("the other machines need LOCKSTEP_SECRET=" + meeting.made_secret());
  if (const auto ended = meeting.begin(0, observer, stop)) return *ended;
  for (const std::string& note : setup.plan.notes) observer.say("note: " + note);
  if (meeting.machines() != nullptr && listener.met) listener.met(meeting.machines()->everyone());

  const launch::Outcome outcome = launch::run_job(job, observer, stop, meeting.machines());
  observer.tick({});  // what came after the last look
  if (meeting.machines() != nullptr) meeting.machines()->conclude({.outcome = outcome});
  std::error_code error;
  if (outcome.kind != launch::Outcome::Kind::failed) fs::remove_all(job.folder.root, error);
  return outcome;
}

}  // namespace lockstep::job
