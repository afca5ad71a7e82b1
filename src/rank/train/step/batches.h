// Where a step's micro-batches come from: each rank reads its own, or rank 0 reads all and hands them out.
#pragma once

#include <memory>
#include <vector>

#include "rank/comm/comm.h"
#include "rank/data/data.h"
#include "rank/task/task.h"

namespace lockstep::train {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Collective where rank 0 hands out. Fields for the device are on the group's.
  virtual std::vector<data::Batch> next(const comm::Group& group) = 0;
  virtual data::Position position() const = 0;
};

// The task of these settings. Collective with data.distributed_loading=false: there rank 0 alone opens the data, and the others learn its
// shape from it.
std::unique_ptr<task::Task> open_task(const comm::Group& ranks, const config::RunConfig& config);

// distributed: data.distributed_loading. True: every rank reads its own share, nothing is sent. False: one reader, for data that only
// rank 0 can reach; elsewhere the source need only know the shapes of its batches and what of them is for the host.
std::unique_ptr<BatchSource> open_batches(bool distributed, std::shared_ptr<const data::Source> source,
                                          const data::Loader::Options& options, data::Position start);

}  // namespace lockstep::train
