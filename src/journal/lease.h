// Who owns a folder: one file that its owner renews while it lives and that others respect, also over a shared disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/file/descriptor.h"
#include "base/mutex.h"

namespace lockstep::journal {

// A process, so that another one on any machine can tell whether it is still there.
struct ProcessIdentity {
  std::string host;           // for people
  std::string boot;           // the running kernel, equal only where process numbers can be compared; empty: not known
  std::string pid_namespace;  // likewise
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;  // when it began, in the kernel's ticks: tells it from a later process with its number

  bool operator==(const ProcessIdentity&) const = default;
};
ProcessIdentity this_process();

struct LeaseTimes {
  double renew_s = 5;
  double expire_s = 60;  // an owner elsewhere that renews nothing for so long, by the clock of who waits, has lost the folder
};
// The usual ones, or those of LOCKSTEP_TEST_LEASE="RENEW EXPIRE" in seconds.
LeaseTimes lease_times();

struct LeaseHolder;

// FOLDER/lease, held. Made in one piece by link(), which is atomic on network file systems too; a lock only guards taking over. Where
// the owner's process is on this machine and gone, or was killed while it waits for its parent, the folder is taken over at once; where it
// is alive it is refused at once; an owner elsewhere is watched for expire_s. Its thread renews a counter in the file and notices when
// someone else has taken over: then lost_to() tells, and whoever holds this must write nothing more. FOLDER/lease.lost names owners that
// were taken over from elsewhere, for those that come back when nobody holds the folder any more.
class Lease {
 public:
  struct Options {
    std::string what;  // what the folder is, for the refusal: "the run folder"
    std::string fix;   // what to choose instead: "another --name"
    LeaseTimes times = lease_times();
    ProcessIdentity self = this_process();
    std::function<void(std::string_view)> say = {};  // hears that it waits for an owner that may be gone
  };
  // Makes the folder where there is none. UserError(usage) where it is held, naming the owner; UserError(checkpoint) where nothing can be
  // written.
  Lease(const std::filesystem::path& folder, Options options);
  ~Lease();  // gives it back
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::string& token() const { return token_; }
  // Any thread. A sentence about who has it now, or nothing while it is ours.
  std::optional<std::string> lost_to() const;

 private:
  struct Holder;
  void take();
  bool create();
  bool remove_dead(const Holder& dead);
  void watch(const Holder& holder);
  void renew();
  void renew_once();
  std::optional<Holder> read() const;
  static std::optional<Holder> read(const std::filesystem::path& path);
  friend std::optional<LeaseHolder> lease_holder(const std::filesystem::path& folder);

  std::filesystem::path path_;
  Options options_;
  std::string token_;
  std::string since_;
  base::Descriptor file_;  // ours: renewing never touches the file of someone who has taken over
  std::uint64_t counter_ = 0;
  mutable base::Mutex mutex_;
  base::Condition wake_;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::optional<std::string> lost_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Who holds a folder, as another process sees it; nothing where nobody does.
struct LeaseHolder {
  std::string token;
  std::string name;      // "process 7 on box, since 2026-01-31T12:00:00Z"
  bool gone = false;     // it was a process of this machine and is no more
  std::int64_t pid = 0;  // where it is alive on this machine
};
std::optional<LeaseHolder> lease_holder(const std::filesystem::path& folder);

// Whether the lease of this folder is still the one with this token: for processes that work on the owner's behalf. Empty token: true.
bool lease_is(const std::filesystem::path& folder, std::string_view token);

}  // namespace lockstep::journal
