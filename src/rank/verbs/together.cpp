// Broadcasts from the first rank.
#include "rank/verbs/together.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

namespace lockstep::verbs {

Together::Together(const comm::Place& place, at::Device device, const std::shared_ptr<journal::PageWriter>& page)
    : world_({.place = place, .device = device}, page), mesh_(world_, {{layout::Axis::shard, place.world_size}}) {}

task::Follow Together::follow() const {
  return [this](const at::Tensor& tokens) { world_.everyone().broadcast(tokens, 0, "tokens").wait(); };
}

bool Together::as_first_says(bool yes) const {
  const at::Tensor word = at::full({1}, yes ? 1 : 0, at::TensorOptions().device(world_.everyone().device()).dtype(at::kLong));
  world_.everyone().broadcast(word, 0, "whether to go on").wait();
  return word.item<std::int64_t>() != 0;
}

std::optional<Together::Tokens> Together::from_first(const std::function<std::optional<Tokens>()>& ask) const {
  constexpr std::int64_t no_more = -1;
  const at::Device device = world_.everyone().device();
  const std::optional<Tokens> mine = leads() ? ask() : std::nullopt;
  meet("a question");  // a broadcast has a deadline, a person has none
  const at::Tensor count = at::full({1}, mine ? std::int64_t(mine->size()) : no_more, at::TensorOptions().device(device).dtype(at::kLong));
  world_.everyone().broadcast(count, 0, "length of a question").wait();
  const auto tokens = count.item<std::int64_t>();
  if (tokens == no_more) return std::nullopt;
  const at::Tensor all =
      leads() ? at::tensor(*mine, at::kInt).to(device) : at::empty({tokens}, at::TensorOptions().device(device).dtype(at::kInt));
  world_.everyone().broadcast(all, 0, "a question").wait();
  const at::Tensor here = all.cpu();
  return Tokens(here.const_data_ptr<std::int32_t>(), here.const_data_ptr<std::int32_t>() + tokens);
}

}  // namespace lockstep::verbs
