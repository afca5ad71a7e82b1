// Named sums of a step or an evaluation: task and layers add to them, and one small all-reduce makes them those of all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

struct Sum {
  std::string name;
  std::int64_t count = 1;  // numbers under this name: one a rank, say
};

// f64 on the device, in one tensor that stays where it is: a recorded step may add to it. One thread, the device's current stream.
class Totals {
 public:
  // The same names in the same order on every rank.
  Totals(std::vector<Sum> sums, at::Device device);

  void clear();
  // A scalar on the device.
  void add(std::string_view name, const at::Tensor& value, std::int64_t index = 0);
  // All numbers of a name.
  void add_all(std::string_view name, const at::Tensor& values);
  // Some of them, from `begin` on.
  void add_from(std::string_view name, std::int64_t begin, const at::Tensor& values);
  // Kept on the host until numbers() is asked for: all of them reach the device in one copy.
  void add(std::string_view name, double value, std::int64_t index = 0);

  // Everything that was added, for an all-reduce. Nothing is added from here to clear().
  const at::Tensor& numbers();
  // One of them, as a scalar on the device.
  at::Tensor of(std::string_view name, std::int64_t index = 0) const;
  at::Tensor all_of(std::string_view name) const;
  // The same of numbers() that were copied to the host.
  double read(std::span<const double> numbers, std::string_view name, std::int64_t index = 0) const;

 private:
  std::int64_t place(std::string_view name, std::int64_t index) const;

  std::vector<Sum> sums_;
  at::Tensor numbers_;
  std::vector<double> from_host_;  // since clear(), and not on the device yet
};

}  // namespace lockstep::model
