// What open pages hear while runs go on: new lines of the run they show, and the list of runs whenever it changes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "front/http/stream.h"
#include "front/serve/runs/gpu_load.h"
#include "front/serve/runs/runs.h"
#include "journal/tail.h"

namespace lockstep::serve {

// One thread looks at the disk for all pages, and only while one is open or a run waits for its turn.
class Live {
 public:
  Live(const Folders& folders, Runs& runs, Starts& starts, Queue& queue);
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  // Events: "runs" (the list, once), "changed" (what is newer than that: RunList::since()), "gpus" (GpuLoad, where there are some), "lines"
  // (an array of lines of metrics.jsonl, behind those that were there at the call), "reset" (the file was replaced: read it again).
  // `run` empty: no lines. `known`: the mark() of a list that the listener has, and need not be told. "stale" instead of "runs": the mark
  // is of another program, or what is new is too long for a stream, so the list is to be asked for.
  std::shared_ptr<http::Stream> listen(const std::string& run, const std::string& known);
  std::string mark(const RunList& list) const;

 private:
  struct Listener {
    std::shared_ptr<http::Stream> stream;
    std::string run;
    std::string known;
    std::optional<std::int64_t> version = {};  // of the list it was told last
    bool knows_gpus = false;                   // how busy they are
  };
  void watch();
  void look();
  void tell_lines();
  void tell_runs();
  void tell_gpus();

  const Folders& folders_;
  Runs& runs_;
  Starts& starts_;
  Queue& queue_;
  base::Mutex mutex_;
  base::Condition changed_;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<Listener> listeners_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<journal::Tail>> tails_ LOCKSTEP_GUARDED_BY(mutex_);  // of runs that someone looks at
  std::int64_t listed_ns_ = 0, loaded_ns_ = 0, commented_ns_ = 0;
  const std::string id_;  // of this program, among those that a page has met
  GpuLoad load_;
  std::string load_told_;
  std::thread thread_;
};

}  // namespace lockstep::serve
