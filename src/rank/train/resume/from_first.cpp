// A length, then as many letters.
#include "rank/train/resume/from_first.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>

namespace lockstep::train {

std::string text_from_first(const comm::Group& group, const std::string& mine, std::string_view what) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(mine.size()), at::kLong).to(group.device());
  group.broadcast(size, 0, what).wait();
  const auto count = size.item<std::int64_t>();
  if (count == 0) return {};
  at::Tensor letters = at::empty({count}, at::kByte);
  if (group.rank() == 0) std::copy(mine.begin(), mine.end(), letters.mutable_data_ptr<std::uint8_t>());
  letters = letters.to(group.device());
  group.broadcast(letters, 0, what).wait();
  letters = letters.cpu();
  const auto* first = letters.const_data_ptr<std::uint8_t>();
  return {first, first + count};
}

}  // namespace lockstep::train
