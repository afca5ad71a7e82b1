// From settings and machine to a job: who runs where, under which name, meeting at which port.
#pragma once

#include <optional>

#include "config/config.h"
#include "front/job/plan.h"
#include "front/launch/devices/devices.h"
#include "front/launch/launch.h"
#include "front/launch/place.h"
#include "front/launch/ports.h"

namespace lockstep::job {

struct Setup {
  config::Settings settings;  // with the run's name filled in
  std::optional<launch::Place> place;
  RunPlan plan;
  launch::Job job;                  // complete but for worker and libraries
  bool writes_shared_files = true;  // rank 0 is here
  bool on_gpus = false;
  std::int64_t gpu_bytes = 0;  // of the smallest GPU here
  bool new_name = false;       // the run's name was made up for it
};

// Touches nothing on disk and starts nothing. UserError for what cannot be met.
Setup set_up(config::Settings settings, const launch::Environment& environment);

// Fills in what follows from the number of all ranks, once that is known. UserError where the batch does not divide.
void plan_for_world(Setup& setup);

}  // namespace lockstep::job
