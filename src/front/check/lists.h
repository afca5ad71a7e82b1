// The checks, a function each, by the file that has them.
#pragma once

#include "front/check/check.h"

namespace lockstep::check {

Outcome check_settings(Context& context);
Outcome check_model(Context& context);
Outcome check_data(Context& context);

Outcome check_worker(Context& context);
Outcome check_libtorch(Context& context);
Outcome check_start(Context& context);

Outcome check_driver(Context& context);
Outcome check_gpus(Context& context);
Outcome check_kinds(Context& context);
Outcome check_links(Context& context);

Outcome check_launcher(Context& context);
Outcome check_variables(Context& context);
Outcome check_port(Context& context);
Outcome check_names(Context& context);
Outcome check_shared_memory(Context& context);
Outcome check_limits(Context& context);
Outcome check_memory(Context& context);
Outcome check_disks(Context& context);
Outcome check_clock(Context& context);

Outcome check_gloo(Context& context);
Outcome check_nccl(Context& context);
Outcome check_training(Context& context);

}  // namespace lockstep::check
