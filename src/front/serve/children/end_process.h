// An end to a launcher that does not answer any more.
#pragma once

#include <sys/types.h>

namespace lockstep::serve {

// As Ctrl-C twice: the launcher ends its ranks and says so in the run folder. One that does not even hear that is killed, and its ranks
// with it. Waits until it is gone, some seconds at most; false where it is there still, or is not ours to end.
bool end_process(pid_t pid);

}  // namespace lockstep::serve
