// A thread that no signal lands on: a process is steered by signals that its main thread takes.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace lockstep::base {

template <typename Work>
std::thread quiet_thread(Work work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));  // starts with the mask of whoever starts it
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace lockstep::base
