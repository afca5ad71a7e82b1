// A signal handler may only set a flag; ranks agree on the step through their next all-reduce.
#include "rank/train/watch/stop_signal.h"

#include <csignal>

#include "base/signal_flag.h"

namespace lockstep::train {

void listen_for_stop() {
  base::listen_for(SIGTERM, base::Calls::go_on);
  std::signal(SIGINT, SIG_IGN);
}

bool stop_requested() { return base::raised(SIGTERM); }

}  // namespace lockstep::train
