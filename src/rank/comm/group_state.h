// What a Group's copies share: its counter, its page and the operations under way.
#pragma once

#include <mutex>
#include <vector>

#include "rank/comm/comm.h"

namespace lockstep::comm {

struct Group::State {
  struct InFlight {
    int slot;
    std::uint64_t sequence;
    std::shared_ptr<Work> work;
  };
  std::shared_ptr<journal::PageWriter> page;
  at::Device device = at::kCPU;
  std::uint64_t sequence = 0;
  bool recording = false;
  std::mutex mutex;  // guards what follows
  std::vector<InFlight> in_flight;
};

}  // namespace lockstep::comm
