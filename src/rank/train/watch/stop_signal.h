// SIGTERM asks a rank to finish its step, save and leave.
#pragma once

namespace lockstep::train {

// Installs the handlers: SIGTERM is remembered, SIGINT is left to `lockstep`, which shares the terminal.
void listen_for_stop();
bool stop_requested();

}  // namespace lockstep::train
