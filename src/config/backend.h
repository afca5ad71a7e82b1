// Which backend a wish for one comes to: the launcher's plan says it, and ranks follow the same rule.
#pragma once

#include "config/run_config.h"

namespace lockstep::config {

// One rank needs nobody to talk to; `automatic` is NCCL between GPUs, and host memory between CPUs.
constexpr Backend chosen_backend(Backend asked, int ranks, bool on_gpus) {
  if (ranks == 1) return Backend::single;
  if (asked != Backend::automatic) return asked;
  return on_gpus ? Backend::nccl : Backend::cpu;
}

}  // namespace lockstep::config
