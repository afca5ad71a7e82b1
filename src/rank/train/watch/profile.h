// Traces a few steps: a file for Perfetto and a table of where a step's time went.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::train {

// LibTorch's profiler from start to stop. One at a time in a process; all calls from the thread that runs the steps.
class Trace {
 public:
  explicit Trace(at::Device device) : device_(device) {}
  ~Trace();
  Trace(const Trace&) = delete;

  void start();
  bool running() const { return running_; }
  // Waits for all streams of the device, writes <stem>.json (for Perfetto) and <stem>.txt, and returns the text: times a step.
  std::string stop(const std::filesystem::path& stem, std::int64_t steps);

 private:
  at::Device device_;
  bool running_ = false;
};

// What `lockstep train --profile` traces.
class Profile {
 public:
  // steps 0: does nothing at all.
  Profile(std::int64_t steps, std::filesystem::path folder, int rank, at::Device device);

  // Starts before the sixth step of this process, stops after `steps` more.
  void before_step(std::int64_t step);
  // Writes <folder>/rank-N.json (the trace) and rank-N.txt (the table).
  void stop();

 private:
  std::int64_t steps_;
  std::filesystem::path folder_;
  int rank_;
  Trace trace_;
  std::int64_t seen_ = 0;
};

}  // namespace lockstep::train
