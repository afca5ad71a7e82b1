// Puts the newest session's mode and plans in place.
#include "rank/kernels/session.h"

#include <ATen/Context.h>

#include <algorithm>
#include <vector>

#include "base/mutex.h"
#include "rank/kernels/plugin.h"

namespace lockstep::kernels {

namespace {

struct Mode {
  bool deterministic = at::globalContext().deterministicAlgorithms();
  bool only_warns = at::globalContext().deterministicAlgorithmsWarnOnly();
  bool fills_memory = at::globalContext().deterministicFillUninitializedMemory();

  void put_in_place() const {
    at::globalContext().setDeterministicAlgorithms(deterministic, only_warns);
    at::globalContext().setDeterministicFillUninitializedMemory(fills_memory);
  }
};

}  // namespace

// LibTorch has one mode for the process, and ops have no argument for what they keep: so the process knows who is at work.
class OpenSessions {
 public:
  void open(const Session& session) {
    const base::Lock lock(mutex_);
    if (sessions_.empty()) outside_ = Mode();
    sessions_.push_back(&session);
    put_newest_in_place();
  }
  void close(const Session& session) {
    const base::Lock lock(mutex_);
    sessions_.erase(std::find(sessions_.begin(), sessions_.end(), &session));
    put_newest_in_place();
    if (session.plans_ == nullptr) return;
    use_newest_plans();
    cuda_plugin().close_session(session.plans_);
  }

 private:
  void put_newest_in_place() LOCKSTEP_REQUIRES(mutex_) {
    if (sessions_.empty()) return outside_.put_in_place();
    const Session& newest = *sessions_.back();
    // Filling memory only hides reads of what was never written, at a price.
    Mode{.deterministic = newest.deterministic_, .only_warns = false, .fills_memory = false}.put_in_place();
    if (newest.plans_ != nullptr) use_newest_plans();
  }
  void use_newest_plans() LOCKSTEP_REQUIRES(mutex_) {
    const auto newest =
        std::find_if(sessions_.rbegin(), sessions_.rend(), [](const Session* session) { return session->plans_ != nullptr; });
    cuda_plugin().use_session(newest == sessions_.rend() ? nullptr : (*newest)->plans_);
  }

  base::Mutex mutex_;
  std::vector<const Session*> sessions_ LOCKSTEP_GUARDED_BY(mutex_);
  Mode outside_ LOCKSTEP_GUARDED_BY(mutex_);
};

namespace {

OpenSessions& open_sessions() {
  static OpenSessions all;
  return all;
}

}  // namespace

Session::Session(at::Device device, bool deterministic)
    : plans_(device.is_cuda() ? cuda_plugin().open_session(device.index()) : nullptr), deterministic_(deterministic) {
  open_sessions().open(*this);
}

Session::~Session() { open_sessions().close(*this); }

}  // namespace lockstep::kernels
