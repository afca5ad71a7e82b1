// The worker's side of `lockstep bench`: arguments in, a measurement, lines into the file that `lockstep` shows.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "rank/comm/comm.h"
#include "rank/verbs/arguments.h"
#include "journal/page.h"

namespace lockstep::bench {

// verb: bench-step, bench-kernels or bench-comm. arguments: config, result, json; steps, warm-up, profile and profile-folder; sizes.
// Collective for bench-comm.
void run(const std::string& verb, const verbs::Arguments& arguments, at::Device device, const comm::Place& place,
         const std::shared_ptr<journal::PageWriter>& page);

}  // namespace lockstep::bench
