// Traces a few steps: a file for Perfetto and a table of where a step's time went.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>

namespace lockstep::train {

class Profile {
 public:
  // steps 0: does nothing at all.
  Profile(std::int64_t steps, std::filesystem::path folder, int rank, at::Device device);
  ~Profile();
  Profile(const Profile&) = delete;

  // Starts before the sixth step of this process, stops after `steps` more.
  void before_step(std::int64_t step);
  // Writes <folder>/rank-N.json (the trace) and rank-N.txt (the table).
  void stop();

 private:
  std::int64_t steps_;
  std::filesystem::path folder_;
  int rank_;
  at::Device device_;
  std::int64_t seen_ = 0;
  bool running_ = false;
};

}  // namespace lockstep::train
