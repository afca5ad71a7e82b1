// Which activations are given up, and in which order, as memory shrinks.
#include <gtest/gtest.h>

#include "config/config.h"
#include "rank/model/recompute.h"

namespace lockstep::model {
namespace {

const config::ModelConfig shape = config::with_defaults({.hidden_size = 256, .num_layers = 4, .num_heads = 4, .vocab_size = 100});
constexpr std::int64_t rows = 1 << 20;  // large enough that activations dwarf the fixed reserve

std::int64_t needed(int all, int matmuls, int input) {
  const ActivationBytes b = activation_bytes(shape, 2);
  return activation_reserve_bytes + rows * (b.working + (input > 0 ? b.matmuls : 0) + all * (b.input + b.matmuls + b.cheap) +
                                            matmuls * (b.input + b.matmuls) + input * b.input);
}

struct Case {
  const char* name;
  std::int64_t available;
  const char* words;
};

TEST(Recompute, GivesUpTheCheapestFirst) {
  const Case cases[] = {
      {"plenty", needed(4, 0, 0), "all kept"},
      {"one byte short", needed(4, 0, 0) - 1, "kept whole in 3 blocks, norms made again in 1"},
      {"all norms", needed(0, 4, 0), "norms made again in 4"},
      {"blocks whole, and a place for them", needed(0, 4, 0) - 1, "norms made again in 2, everything made again in 2"},
      {"nothing but inputs", needed(0, 0, 4), "everything made again in 4"},
      {"too little anyway", 0, "everything made again in 4"},
  };
  for (const Case& c : cases) EXPECT_EQ(describe(choose_keep(shape, rows, 2, c.available)), c.words) << c.name;
}

TEST(Recompute, LeavesRoomWhereFewBitsBecomeWhole) {
  EXPECT_EQ(dense_buffer_bytes(shape, 2), 0);
  config::ModelConfig few = shape;
  few.load_in_4bit = true;
  const std::int64_t buffer = 2 * shape.hidden_size * 2 * shape.intermediate_size;  // gate and up are the largest, in 16 bits
  EXPECT_EQ(dense_buffer_bytes(few, 2), buffer);
  EXPECT_EQ(describe(choose_keep(few, rows, 2, needed(4, 0, 0) + buffer)), "all kept");
  EXPECT_NE(describe(choose_keep(few, rows, 2, needed(4, 0, 0) + buffer - 1)), "all kept");
}

}  // namespace
}  // namespace lockstep::model
