// What open pages hear while runs go on: new lines of the run they show, and the list of runs whenever it changes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "front/serve/http/stream.h"
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

  // Events: "runs" (the list), "lines" (an array of lines of metrics.jsonl, behind those that were there at the call), "reset" (the file
  // was replaced: read it again). `run` empty: only the list.
  std::shared_ptr<http::Stream> listen(const std::string& run);

 private:
  struct Listener {
    std::shared_ptr<http::Stream> stream;
    std::string run;
    bool greeted = false;  // has heard the list
  };
  void watch();
  void tell_lines();
  void tell_runs();

  const Folders& folders_;
  Runs& runs_;
  Starts& starts_;
  Queue& queue_;
  base::Mutex mutex_;
  base::Condition changed_;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<Listener> listeners_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<journal::Tail>> tails_ LOCKSTEP_GUARDED_BY(mutex_);  // of runs that someone looks at
  std::string told_;                                                                         // the list, as last told
  std::thread thread_;
};

}  // namespace lockstep::serve
