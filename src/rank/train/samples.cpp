// Each rank writes its share of the samples, then all texts go to everyone at once: a rank that is done early waits there, in step.
#include "rank/train/samples.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

// More ranks than anyone has prompts write none.
constexpr std::size_t most_prompts = 1 << 16;

// Everyone's texts. Collective.
std::vector<std::string> gather(const comm::Group& ranks, const std::vector<std::string>& texts) {
  const auto count = std::int64_t(texts.size());
  std::vector<std::int64_t> own_sizes;
  for (const std::string& text : texts) own_sizes.push_back(std::int64_t(text.size()));
  const at::Tensor sizes = at::from_blob(own_sizes.data(), {count}, at::kLong).clone().to(ranks.device());
  ranks.all_reduce(sizes, comm::Reduce::max, "lengths of samples").wait();
  const at::Tensor known = sizes.cpu();
  const std::int64_t width = std::max<std::int64_t>(1, known.max().item<std::int64_t>());
  at::Tensor letters = at::zeros({count, width}, at::kInt);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string& text = texts[std::size_t(i)];
    std::transform(text.begin(), text.end(), letters.mutable_data_ptr<std::int32_t>() + i * width,
                   [](char c) { return std::int32_t(static_cast<unsigned char>(c)); });
  }
  letters = letters.to(ranks.device());
  ranks.all_reduce(letters, comm::Reduce::max, "samples").wait();
  letters = letters.cpu();
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* row = letters.const_data_ptr<std::int32_t>() + i * width;
    all.emplace_back(row, row + known.const_data_ptr<std::int64_t>()[i]);
  }
  return all;
}

}  // namespace

Samples::Samples(const Run& run) : run_(run) {
  const auto rank = static_cast<std::size_t>(run.mesh->everyone().rank());
  const std::size_t prompts = std::max<std::size_t>(1, run.config.monitor.sample_prompts.size());
  task::Follow follow;
  if (together()) follow = [&run](const at::Tensor& tokens) { run.mesh->everyone().broadcast(tokens, 0, "tokens of samples").wait(); };
  sampler_ = run.task->make_sampler(/*writes=*/together() || rank < prompts, run.world->device(), follow);
}

void Samples::look() {
  if (sampler_) sampler_->look();
}

// Layers whose weights are gathered are walked by all ranks at once: each writes all texts, of which the first rank's count.
bool Samples::together() const { return run_.replica.store->opens_together(); }

// This rank's texts, empty where a sample is another's.
std::vector<std::string> Samples::own_share(const comm::Group& ranks) {
  std::vector<std::string> texts(sampler_->prompts().size());
  std::vector<std::size_t> mine;
  const std::size_t first = together() ? 0 : static_cast<std::size_t>(ranks.rank()),
                    step = together() ? 1 : static_cast<std::size_t>(ranks.size());
  for (std::size_t i = first; i < texts.size(); i += step) mine.push_back(i);
  if (mine.empty()) return texts;
  std::vector<std::string> written = sampler_->write(*run_.model, mine);
  if (together() && ranks.rank() > 0) return texts;
  for (std::size_t i = 0; i < mine.size(); ++i) texts[mine[i]] = std::move(written[i]);
  return texts;
}

void Samples::write(const comm::Group& ranks) {
  if (!sampler_) return;
  const std::vector<std::string> mine = own_share(ranks);
  ranks.meet("writing samples");
  const std::vector<std::string> texts = gather(ranks, mine);
  if (!run_.metrics) return;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    run_.metrics->write_event(
        nlohmann::json{{"event", "sample"}, {"step", run_.progress.step}, {"prompt", sampler_->prompts()[i]}, {"text", texts[i]}}.dump(
            -1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace lockstep::train
