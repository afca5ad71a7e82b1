// Signals as flags: a handler may do no more than raise one, and whoever cares looks when it suits him.
#pragma once

namespace lockstep::base {

enum class Calls { go_on, are_interrupted };  // a read that waits when the signal comes

// From now on the signal raises its flag instead of doing what it does; the flag is down.
void listen_for(int signal, Calls calls);
bool raised(int signal);
bool take_raised(int signal);  // and lowers it

}  // namespace lockstep::base
