// Sums and roots of Muon and Adafactor are the same bits on every CPU, with any number of threads.
#include "rank/optim/fixed_order.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::optim {
namespace {

TEST(FixedOrder, RootsAreRoundedRight) {
  for (int i = 0; i < 2000; ++i) {
    const float number = std::exp(float(i - 1000) / 20);
    EXPECT_EQ(fixed_root(at::full({}, number, at::kFloat)).item<float>(), float(std::sqrt(double(number)))) << number;
  }
}

TEST(FixedOrder, SumsDoNotKnowThreads) {
  const at::Tensor numbers = at::arange(300 * 1001, at::kFloat).mul_(0.37).sin_().view({300, 1001});
  const int threads = at::get_num_threads();
  const auto all = [&](int with) {
    at::set_num_threads(with);
    return std::vector{fixed_sum(numbers), fixed_row_sums(numbers), fixed_column_sums(numbers), fixed_mm(numbers, numbers.t())};
  };
  const auto one = all(1), four = all(4);
  at::set_num_threads(threads);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], four[i])) << i;
}

}  // namespace
}  // namespace lockstep::optim
