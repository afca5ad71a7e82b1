// The loop over layers in both directions.
#include "rank/model/stage.h"

#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "rank/kernels/progress.h"
#include "rank/model/layer.h"
#include "rank/model/trace_range.h"

namespace lockstep::model {

Stage::Stage(std::vector<std::unique_ptr<Layer>> layers, at::Device device, std::int64_t first)
    : layers_(std::move(layers)), device_(device) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto number = first + std::int64_t(i);
    range_names_.emplace_back(fmt::format("block {} forward", number), fmt::format("block {} backward", number));
  }
  set_flights(1);
}

Stage::~Stage() = default;

void Stage::set_flights(std::size_t count) {
  base::check(count >= 1, "there is a flight at least");
  flights_.resize(count);
  forget_activations();
}

void Stage::forget_activations() {
  for (Flight& flight : flights_) {
    flight = {};
    for (const auto& layer : layers_) flight.layers.push_back(layer->make_kept());
  }
}

Flight& Stage::flight(std::size_t index) { return flights_.at(index); }

Border& Stage::border(std::size_t flight) { return flights_.at(flight).border; }

void Stage::set_recompute(const std::vector<Recompute>& policies, bool offload) {
  base::check(policies.size() == layers_.size(), "one policy per layer");
  offloaded_.clear();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    layers_[i]->set_recompute(policies[i]);
    // The first layer's input belongs to whoever made it.
    if (offload && policies[i] == Recompute::blocks && i > 0 && !device_.is_cpu()) offloaded_.push_back(i);
  }
  forget_activations();
}

void Stage::release_buffers() {
  forget_activations();
  gradient_ = {};
}

void Stage::mark_blocks(std::shared_ptr<kernels::Progress> progress) { progress_ = std::move(progress); }

void Stage::use_fp8() { throw base::Bug("this model has no products in 8 bits"); }

void Stage::forward(const Micro& micro, std::size_t which) {
  const c10::NoGradGuard no_graph;
  Flight& flight = this->flight(which);
  flight.micro = micro;
  walk_forward(flight);
  send(flight);
}

at::Tensor Stage::backward(const at::Tensor&, std::size_t which) {
  const c10::NoGradGuard no_graph;
  walk_backward(flight(which), /*further=*/true);
  return {};
}

void Stage::walk_forward(Flight& flight) {
  const Pass pass{Pass::Direction::forward, flight.micro};
  const std::size_t streams = flight.border.streams.size();
  base::check(streams > 0, "a stage without the model's start is given a border before it goes forward");
  std::size_t& away = flight.offloaded = 0;
  while (!offloaded_.empty() && flight.offload.size() < streams) flight.offload.emplace_back(device_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerKept& kept = *flight.layers[i];
    const bool leaves = away < offloaded_.size() && offloaded_[away] == i;
    for (std::size_t s = 0; leaves && s < streams; ++s) kept.input(s) = flight.offload[s].take(away);
    const TraceRange range(range_names_[i].first);
    layers_[i]->open(pass);
    layers_[i]->forward(flight.border, flight, &kept);
    layers_[i]->close(pass);
    if (progress_) progress_->mark();
    if (!leaves) continue;
    for (std::size_t s = 0; s < streams; ++s) flight.offload[s].store(away, kept.input(s), offloaded_.size());
    ++away;
  }
}

void Stage::walk_backward(Flight& flight, bool further) {
  const Pass pass{Pass::Direction::backward, flight.micro};
  std::size_t& away = flight.offloaded;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const TraceRange range(range_names_[i].second);
    LayerKept& kept = *flight.layers[i];
    if (away > 0 && offloaded_[away - 1] == i) {
      --away;
      for (std::size_t s = 0; s < flight.offload.size(); ++s) kept.input(s) = flight.offload[s].fetch(away);
    }
    layers_[i]->open(pass);
    layers_[i]->backward(gradient_, flight, kept, further || i > 0);
    layers_[i]->close(pass);
    if (progress_) progress_->mark();
  }
}

void Stage::look_through(Flight& flight) const {
  const Pass pass{Pass::Direction::forward};
  for (const auto& layer : layers_) {
    layer->open(pass);
    layer->forward(flight.border, flight, nullptr);
    layer->close(pass);
  }
}

void Stage::send(Flight& flight) const {
  flight.parked.resize(flight.border.streams.size());
  for (std::size_t s = 0; s < flight.parked.size(); ++s) {
    ResidualStream& stream = flight.border.streams[s];
    at::Tensor& whole = flight.parked[s].residual;
    fit(whole, stream.residual.sizes(), stream.residual.options());
    if (stream.delta.defined())
      at::add_out(whole, stream.residual, stream.delta);
    else
      whole.copy_(stream.residual);
    stream = {whole, {}};
  }
}

void Stage::park(Flight& flight) const {
  if (flights_.size() == 1) return;
  flight.parked.resize(flight.border.streams.size());
  for (std::size_t s = 0; s < flight.parked.size(); ++s)
    for (const auto part : {&ResidualStream::residual, &ResidualStream::delta}) {
      at::Tensor &made = flight.border.streams[s].*part, &own = flight.parked[s].*part;
      if (!made.defined()) continue;
      fit(own, made.sizes(), made.options()).copy_(made);
      made = own;
    }
}

void Stage::add_to(HeldMemory& memory) const {
  for (const Flight& flight : flights_) {
    for (const auto& kept : flight.layers) kept->add_to(memory);
    memory.add(flight.embedded);
    for (const ResidualStream& stream : flight.parked) {
      memory.add(stream.residual);
      memory.add(stream.delta);
    }
  }
  for (const at::Tensor& dstream : gradient_.streams) memory.add(dstream);
  memory.add(gradient_.condition);
}

Stage::Held Stage::held() const {
  HeldMemory memory;
  add_to(memory);
  return {.activations = memory.bytes()};
}

}  // namespace lockstep::model
