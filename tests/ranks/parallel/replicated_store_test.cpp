// Replicas count every unit once between them, and their squares add up to one rank's, bit for bit.
#include "rank/parallel/replicated_store.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "rank/optim/optim.h"
#include "rank/parallel/replicate.h"

namespace lockstep::parallel {
namespace {

Replica tiny_replica() {
  const auto shape =
      config::with_defaults({.hidden_size = 96, .num_layers = 3, .num_heads = 4, .kv_heads = 2, .vocab_size = 701, .max_seq_len = 16});
  Replica replica = make_replica(layout::decoder_units(shape), {});
  const at::Tensor& gradients = replica.gradients.front().memory;
  gradients.copy_(at::randn({gradients.numel()}, at::detail::createCPUGenerator(3)));
  return replica;
}

void deal(const Replica& replica, int rank, int ranks) { dynamic_cast<ReplicatedStore&>(*replica.store).deal(rank, ranks); }

TEST(ReplicatedStore, CountsEveryUnitOnce) {
  const Replica replica = tiny_replica();
  for (const int ranks : {1, 2, 3, 5, 7}) {
    std::vector<int> counted(replica.store->units());
    for (int rank = 0; rank < ranks; ++rank) {
      deal(replica, rank, ranks);
      EXPECT_EQ(replica.store->updates().size(), replica.units.size()) << "each rank updates all";
      for (const model::HeldSlice& slice : replica.store->counts()) {
        EXPECT_EQ(slice.begin, 0);
        EXPECT_EQ(slice.count, replica.store->flat(slice.unit).elements);
        ++counted[slice.unit];
      }
    }
    EXPECT_EQ(counted, std::vector<int>(replica.store->units(), 1)) << ranks << " ranks";
  }
}

TEST(ReplicatedStore, SquaresOfAllRanksAreThoseOfOne) {
  const Replica replica = tiny_replica();
  const auto optimizer = optim::make_optimizer(*replica.store, {});
  const at::Tensor alone = optimizer->sum_of_squares();
  ASSERT_EQ(alone.numel(), optimizer->square_sums());
  EXPECT_NEAR(alone.sum().item<double>(), replica.gradients.front().memory.to(at::kDouble).square().sum().item<double>(), 1e-3);
  for (const int ranks : {2, 3, 7}) {
    const at::Tensor all = at::zeros_like(alone);
    for (int rank = 0; rank < ranks; ++rank) {
      deal(replica, rank, ranks);
      all.add_(optim::make_optimizer(*replica.store, {})->sum_of_squares());
    }
    EXPECT_TRUE(at::equal(all, alone)) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace lockstep::parallel
