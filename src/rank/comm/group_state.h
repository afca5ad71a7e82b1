// What a Group's copies share: its counter, its page and the operations under way.
#pragma once

#include <vector>

#include "base/mutex.h"
#include "rank/comm/comm.h"

namespace lockstep::comm {

struct Group::State {
  struct InFlight {
    int slot;
    std::uint64_t sequence, bytes;
    std::string_view kind;  // lives as long as the program
    std::shared_ptr<Work> work;
  };
  std::shared_ptr<journal::PageWriter> page;
  std::shared_ptr<Ledger> ledger;  // null where nobody counts
  at::Device device = at::kCPU;
  std::uint64_t sequence = 0;
  bool recording = false;
  base::Mutex mutex;
  std::vector<InFlight> in_flight LOCKSTEP_GUARDED_BY(mutex);
};

}  // namespace lockstep::comm
