// The saver: copies in the caller's thread, turn by turn, and writes in its own.
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/handover.h"
#include "rank/checkpoint/save.h"

namespace lockstep::checkpoint {
namespace {

// Errors of the file system begin with their room; within our own sentence that is noise.
std::string without_room(std::string_view what) {
  const auto end = what.starts_with('[') ? what.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}

}  // namespace

struct Saver::Impl {
  base::FileSystem& files;
  const Options options;
  std::array<Staging, Handover::buffers> staging;
  Save save;  // stays as it is while the thread runs
  std::unique_ptr<Handover> handover;
  std::thread thread;
  std::int64_t attempts = 0;
  std::atomic<bool> busy = false;
  std::atomic<std::int64_t> closing_ns = 0;  // when the destructor began; 0: not yet
  base::Mutex mutex;
  std::optional<std::string> error LOCKSTEP_GUARDED_BY(mutex);

  Impl(base::FileSystem& files_, Options options_) : files(files_), options(std::move(options_)) {}

  void join() {
    if (thread.joinable()) thread.join();
  }
  bool patient(double quiet_s) const {
    const std::int64_t closing = closing_ns;
    if (closing != 0) return base::seconds_since(closing) < options.closing_grace_s;
    return quiet_s < options.peer_timeout_s;
  }
  void copy(const Contents& contents) noexcept;
  void write(const NextTurn& next) noexcept;
  std::string explain(const std::string& reason) const;
};

// Fails into the handover: the writer tells the others, and the save's error is told where every other is.
void Saver::Impl::copy(const Contents& contents) noexcept {
  try {
    for (std::size_t turn = 0; turn < save.turns.size() && handover->wait_for_room(); ++turn)
      handover->give(staging[turn % staging.size()].copy(contents, save.files, save.turns[turn]));
  } catch (const c10::Error& failure) {
    handover->fail(fmt::format("copying it to host memory failed: {}", failure.what_without_backtrace()));
  } catch (const std::exception& failure) {
    handover->fail(fmt::format("copying it to host memory failed: {}", failure.what()));
  }
}

void Saver::Impl::write(const NextTurn& next) noexcept {
  SaveWriter writer(files, options, [this](double quiet_s) { return patient(quiet_s); });
  try {
    if (options.share.index == 0) {
      if (options.may_write) options.may_write();
      clean_leftovers(files, options.folder, save.step);
    }
    writer.write_part(save, next);
    if (options.share.index == 0) writer.finish(save);
  } catch (const std::exception& failure) {
    handover->close();
    const std::string reason = without_room(failure.what());
    writer.give_up(save, reason);
    const base::Lock lock(mutex);
    error = explain(reason);
  }
  busy = false;
}

std::string Saver::Impl::explain(const std::string& reason) const {
  std::string before = "There is no earlier checkpoint.";
  for (const StepFolder& found : list_step_folders(options.folder)) {
    if (found.state != StepFolder::State::whole || found.step == save.step) continue;
    before = fmt::format("{} is untouched.", found.path.string());
    break;
  }
  return fmt::format("step {} was not saved: {}{} {}", save.step, reason, reason.ends_with('.') ? "" : ".", before);
}

Saver::Saver(base::FileSystem& files, Options options) : impl_(std::make_unique<Impl>(files, std::move(options))) {
  if (impl_->options.share.index == 0) clean_leftovers(files, impl_->options.folder);
}

Saver::~Saver() {
  impl_->closing_ns = base::now_ns();
  impl_->join();
  if (const auto error = take_error()) base::log_error("{}", *error);
}

void Saver::begin(std::int64_t step, const Contents& contents, std::optional<std::int64_t> best) {
  impl_->join();
  impl_->save = cut_save(step, ++impl_->attempts, contents, impl_->options);
  impl_->save.best = best;
  if (const std::size_t turns = impl_->save.turns.size(); turns > 1)
    base::log_info("step {} is copied in {} turns, as host memory for copies is bounded by {}: training waits for the disk meanwhile", step,
                   turns, base::human_bytes(impl_->options.staging_bytes));
  impl_->handover = std::make_unique<Handover>();
  impl_->busy = true;
  impl_->thread = std::thread([impl = impl_.get()] { impl->write([impl] { return impl->handover->take(); }); });
  impl_->copy(contents);
  if (!impl_->options.asynchronous) impl_->join();
}

void Saver::wait() {
  impl_->join();
  if (auto error = take_error()) throw base::UserError(base::ExitCode::checkpoint, "checkpoint", *error);
}

std::optional<std::string> Saver::take_error() {
  const base::Lock lock(impl_->mutex);
  return std::exchange(impl_->error, std::nullopt);
}

bool Saver::busy() const { return impl_->busy; }

}  // namespace lockstep::checkpoint
