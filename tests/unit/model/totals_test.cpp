// Named sums: numbers of host and device under one name, read on either side.
#include "rank/model/sums/totals.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::model {
namespace {

TEST(Totals, AddUpWhateverSideANumberComesFrom) {
  const at::Device device = test::device();
  Totals totals({{"loss"}, {"trained"}, {"of each rank", 3}}, device);
  const void* address = totals.numbers().const_data_ptr();
  for (int step = 1; step <= 2; ++step) {
    totals.clear();
    totals.add("loss", at::full({}, 1.5, at::TensorOptions().device(device).dtype(at::kFloat)));
    totals.add("loss", at::full({}, 2.0, at::TensorOptions().device(device).dtype(at::kFloat)));
    totals.add("trained", 7);
    totals.add("trained", 4.0 * step);
    totals.add("of each rank", 9, 2);
    EXPECT_EQ(totals.numbers().const_data_ptr(), address) << "a recorded step adds there";
    const at::Tensor host = totals.numbers().cpu();
    const std::span<const double> numbers(host.const_data_ptr<double>(), std::size_t(host.numel()));
    EXPECT_EQ(numbers.size(), 5u);
    EXPECT_EQ(totals.read(numbers, "loss"), 3.5);
    EXPECT_EQ(totals.read(numbers, "trained"), 7 + 4.0 * step);
    EXPECT_EQ(totals.read(numbers, "of each rank", 1), 0);
    EXPECT_EQ(totals.read(numbers, "of each rank", 2), 9);
    EXPECT_EQ(totals.of("trained").item<double>(), 7 + 4.0 * step);
  }
}

TEST(Totals, ANameThatNobodySaidIsABug) {
  Totals totals({{"loss"}}, at::kCPU);
  EXPECT_THROW(totals.add("lass", 1), base::Bug);
  EXPECT_THROW(totals.add("loss", 1, 1), base::Bug);
}

}  // namespace
}  // namespace lockstep::model
