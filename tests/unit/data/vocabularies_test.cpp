// Vocabularies that need no file.
#include <gtest/gtest.h>

#include "rank/data/vocabularies.h"

namespace lockstep::data {
namespace {

TEST(Vocabularies, NumbersAndBytes) {
  const auto numbers = number_vocabulary(300);
  EXPECT_EQ(numbers->encode("17 4 299"), (std::vector<std::int32_t>{17, 4, 299}));
  EXPECT_EQ(numbers->encode("17 300"), (std::vector<std::int32_t>{'1', '7', ' ', '3', '0', '0'}));
  EXPECT_EQ(numbers->decode(std::vector<std::int32_t>{17, 4}), "17 4");
  EXPECT_EQ(number_vocabulary(100)->encode("az"), (std::vector<std::int32_t>{97}));
  const auto bytes = byte_vocabulary();
  EXPECT_EQ(bytes->decode(bytes->encode("caf\xc3\xa9")), "caf\xc3\xa9");
  EXPECT_EQ(bytes->decode(std::vector<std::int32_t>{'a', 400, 0xff}), "a?\xef\xbf\xbd");
}

}  // namespace
}  // namespace lockstep::data
