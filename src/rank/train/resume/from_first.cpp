// A length, then as many letters.
#include "rank/train/resume/from_first.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>

namespace lockstep::train {
namespace {

at::Tensor size_of(const comm::Group& group, const std::string& text) {
  return at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong).to(group.device());
}

std::string letters_of(const comm::Group& group, int rank, std::int64_t count, const std::string& mine, std::string_view what) {
  if (count == 0) return {};
  at::Tensor letters = at::empty({count}, at::kByte);
  if (group.rank() == rank) std::copy(mine.begin(), mine.end(), letters.mutable_data_ptr<std::uint8_t>());
  letters = letters.to(group.device());
  group.broadcast(letters, rank, what).wait();
  letters = letters.cpu();
  const auto* first = letters.const_data_ptr<std::uint8_t>();
  return {first, first + count};
}

}  // namespace

std::string text_from_first(const comm::Group& group, const std::string& mine, std::string_view what) {
  const at::Tensor size = size_of(group, mine);
  group.broadcast(size, 0, what).wait();
  return letters_of(group, 0, size.item<std::int64_t>(), mine, what);
}

std::string first_text(const comm::Group& group, const std::string& mine, std::string_view what) {
  const at::Tensor size = size_of(group, mine);
  const at::Tensor all = at::empty({group.size()}, size.options());
  group.all_gather(all, size, what).wait();
  const at::Tensor sizes = all.cpu();
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto count = sizes.const_data_ptr<std::int64_t>()[rank];
    if (count > 0) return letters_of(group, rank, count, mine, what);
  }
  return {};
}

}  // namespace lockstep::train
