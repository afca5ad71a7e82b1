// Several micro-batches between forward and backward at once, and numbers that are there only while a unit is open: the same bits.
#include "unit/model/kinds_fixture.h"

namespace lockstep::model::kinds {
namespace {

class Flights : public testing::TestWithParam<Case> {};

TEST_P(Flights, TwoAtOnceGiveTheBitsOfOneAfterAnother) {
  const test::Deterministic deterministic;
  ASSERT_EQ(layout::wrong_with(two_at_once(), kMicroBatches, 2), "");
  for (const Recompute policy : kPolicies) {
    SCOPED_TRACE(fmt::format("policy {}", int(policy)));
    const Result plain = Model(GetParam(), policy, Numbers::whole).run(layout::plain_schedule(kMicroBatches), 1);
    expect_same_bits(plain, Model(GetParam(), policy, Numbers::whole).run(two_at_once(), 2));
    expect_same_bits(plain, Model(GetParam(), policy, Numbers::whole).run(layout::plain_schedule(kMicroBatches), 2));
  }
}

TEST_P(Flights, NumbersInTwoSlotsGiveTheBitsOfWholeOnes) {
  const test::Deterministic deterministic;
  for (const Recompute policy : kPolicies) {
    SCOPED_TRACE(fmt::format("policy {}", int(policy)));
    const Result whole = Model(GetParam(), policy, Numbers::whole).run(two_at_once(), 2);
    const Result slots = Model(GetParam(), policy, Numbers::slots).run(two_at_once(), 2);
    expect_same_bits(whole, slots);
    EXPECT_EQ(slots.opened, 3 * 2 * kMicroBatches + 3) << "each of three layers once per pass, and for its magnitudes";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Flights, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::model::kinds
