// The runs of the output folder, as the page lists and shows them: told from their folders alone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/mutex.h"
#include "front/serve/folders.h"
#include "front/serve/runs/machines.h"
#include "front/serve/runs/queue.h"
#include "front/serve/runs/run_log.h"
#include "front/serve/children/starts.h"

namespace lockstep::serve {

// A run as the list shows it.
struct Card {
  std::string name, state, text;  // text: all of it, as JSON
  std::int64_t version = 0;       // of the list in which it first looked so
};

// All runs at one moment: those that wait, those that train, then the others, the newest first.
struct RunList {
  std::vector<std::shared_ptr<const Card>> cards;
  std::int64_t version = 0;  // grows with every change
  std::int64_t ordered = 0;  // the version that brought this order, or these names

  std::string text() const;  // an array, as JSON
  // {"cards": those that are newer than `version`, "names": all in their order, where that is newer}; empty where nothing is.
  std::string since(std::int64_t version) const;
};

// Any thread.
class Runs {
 public:
  Runs(const Folders& folders, RunLogs& logs, Starts& starts, Queue& queue)
      : folders_(folders), logs_(logs), starts_(starts), queue_(queue) {}

  // Looks at every run's folder, and into those that do not look as they did: thousands of runs that have ended cost little.
  std::shared_ptr<const RunList> list();
  // All but its curves: settings with those that were changed first, checkpoints, how it ended, which ranks have logs.
  nlohmann::ordered_json details(const std::string& name);
  // The last lines of a rank's log, or of what its launcher printed (rank -1).
  nlohmann::ordered_json log_lines(const std::string& name, int rank, int lines);
  // GPUs and processes of its machines (machines.h).
  nlohmann::ordered_json machines(const std::string& name);
  // Whether some run is being trained here.
  bool some_train();
  void remove(const std::string& name);  // UserError where it is being trained

 private:
  struct State {
    std::string word;    // "running", "starting", "complete", "stopped", "failed", "ended", "killed", "waiting"
    std::string reason;  // in a sentence, where there is more to say
  };
  struct Look {
    std::uint64_t inode = 0, bytes = 0;
    std::int64_t changed_ns = -1;  // -1: it is not there
    bool operator==(const Look&) const = default;
  };
  // What tells that a run may have changed. Whoever starts, ends or is told of a run makes a file in its folder.
  struct Looks {
    Look folder, metrics, start;
    bool operator==(const Looks&) const = default;
    std::int64_t newest_ns() const;
  };
  struct Kept {
    Looks looks = {};
    bool settled = false;  // as long as it looks so, its card holds
    std::int64_t placed_ns = 0;
    std::optional<std::uint64_t> bytes = {};  // on disk, once they were counted
    std::int64_t counted_ns = 0;
    std::shared_ptr<const Card> card = {};
  };
  static Look look(int folder, const std::string& path);
  std::map<std::string, Looks> look_at_all() const;
  void renew(const std::string& name, const Looks& looks, const std::vector<std::string>& waiting, Kept& kept) LOCKSTEP_REQUIRES(listing_);
  void count_bytes(const std::vector<std::string>& waiting) LOCKSTEP_REQUIRES(listing_);
  std::shared_ptr<const RunList> arranged() LOCKSTEP_REQUIRES(listing_);
  nlohmann::ordered_json card(const std::string& name, const std::vector<std::string>& waiting, const std::optional<std::uint64_t>& bytes);
  State state_of(const std::string& name, const RunNumbers& numbers, const std::vector<std::string>& waiting);
  RunNumbers numbers_of(const std::string& name);
  std::uint64_t bytes_on_disk(const std::string& name) const;

  const Folders& folders_;
  RunLogs& logs_;
  Starts& starts_;
  Queue& queue_;
  Machines machines_;
  // What a run's metrics came to when the file looked so.
  struct Read {
    Look look = {};
    RunNumbers numbers = {};
  };
  base::Mutex mutex_;
  std::map<std::string, Read> read_ LOCKSTEP_GUARDED_BY(mutex_);
  base::Mutex listing_;  // one list is made at a time
  std::map<std::string, Kept> kept_ LOCKSTEP_GUARDED_BY(listing_);
  std::shared_ptr<const RunList> listed_ LOCKSTEP_GUARDED_BY(listing_) = std::make_shared<RunList>();
  std::int64_t version_ LOCKSTEP_GUARDED_BY(listing_) = 0;
  std::size_t counted_ LOCKSTEP_GUARDED_BY(listing_) = 0;  // where counting bytes goes on
};

}  // namespace lockstep::serve
