// The runs of the output folder, as the page lists and shows them: told from their folders alone.
#pragma once

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

// Any thread.
class Runs {
 public:
  Runs(const Folders& folders, RunLogs& logs, Starts& starts, Queue& queue)
      : folders_(folders), logs_(logs), starts_(starts), queue_(queue) {}

  nlohmann::ordered_json list();                         // newest first
  nlohmann::ordered_json card(const std::string& name);  // one of the list
  // All but its curves: settings with those that were changed first, checkpoints, how it ended, which ranks have logs.
  nlohmann::ordered_json details(const std::string& name);
  // The last lines of a rank's log, or of what its launcher printed (rank -1).
  nlohmann::ordered_json log_lines(const std::string& name, int rank, int lines);
  // GPUs and processes of its machines (machines.h).
  nlohmann::ordered_json machines(const std::string& name);
  // Whether some run is being trained here.
  bool some_train();
  // What deleting it would free, in bytes.
  std::uint64_t bytes_on_disk(const std::string& name);
  void remove(const std::string& name);  // UserError where it is being trained

 private:
  struct State {
    std::string word;    // "running", "starting", "complete", "stopped", "failed", "ended", "killed", "waiting"
    std::string reason;  // in a sentence, where there is more to say
  };
  State state_of(const std::string& name, const RunNumbers& numbers);
  RunNumbers numbers_of(const std::string& name);
  std::uint64_t bytes_lately(const std::string& name);

  const Folders& folders_;
  RunLogs& logs_;
  Starts& starts_;
  Queue& queue_;
  Machines machines_;
  struct Sized {
    std::uint64_t bytes = 0;
    std::int64_t looked_ns = 0;
  };
  // What a run's metrics came to when the file looked so: of hundreds of runs only those that train are read again.
  struct Read {
    std::uint64_t inode = 0, bytes = 0;
    std::int64_t written_ns = -1;
    RunNumbers numbers = {};
  };
  base::Mutex mutex_;
  std::map<std::string, Read> read_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, Sized> sizes_ LOCKSTEP_GUARDED_BY(mutex_);  // counting a run's files takes a while
};

}  // namespace lockstep::serve
