// Each rank writes its share of the samples, then all texts go to everyone at once: a rank that is done early waits there, in step.
#include "rank/train/samples.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include "rank/train/text_model.h"

namespace lockstep::train {
namespace {

std::vector<std::string> prompts_of(const config::MonitorConfig& monitor) {
  return monitor.sample_prompts.empty() ? std::vector{monitor.sample_prompt} : monitor.sample_prompts;
}

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

// This rank's texts, empty where a sample is another's.
std::vector<std::string> Samples::own_share(const comm::Group& ranks, const std::vector<std::string>& prompts) {
  const config::MonitorConfig& monitor = run_.config.monitor;
  const auto context = run_.config.model.max_seq_len;
  std::vector<std::size_t> mine;
  std::vector<task::Prompt> given;
  for (auto i = std::size_t(ranks.rank()); i < prompts.size(); i += std::size_t(ranks.size())) {
    task::Prompt prompt{
        language_->can_chat() ? language_->encode_chat({{{"role", "user"}, {"content", prompts[i]}}}) : language_->encode(prompts[i]), i};
    // What does not fit is left out at its start: a sample must not end a run.
    if (std::int64_t(prompt.tokens.size()) >= context) prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - (context + 1) / 2);
    mine.push_back(i);
    given.push_back(std::move(prompt));
  }
  task::Generator generator(*run_.model, *language_, run_.world->device(),
                            {.sampling = {.temperature = monitor.sample_temperature, .seed = run_.config.trainer.seed},
                             .max_tokens = monitor.sample_tokens,
                             .context = context});
  const auto completions = generator.run(given);
  std::vector<std::string> texts(prompts.size());
  for (std::size_t i = 0; i < mine.size(); ++i)
    texts[mine[i]] = language_->can_chat() ? completions[i].text : prompts[mine[i]] + completions[i].text;
  return texts;
}

void Samples::write(const comm::Group& ranks) {
  if (!run_.dataset.vocabulary || run_.config.monitor.sample_tokens <= 0) return;
  if (!language_) language_ = language_of_run(run_.config, run_.dataset.vocabulary.get());
  const std::vector<std::string> prompts = prompts_of(run_.config.monitor);
  const std::vector<std::string> texts = gather(ranks, own_share(ranks, prompts));
  if (!run_.metrics) return;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    run_.metrics->write_event(
        nlohmann::json{{"event", "sample"}, {"step", run_.progress.step}, {"prompt", prompts[i]}, {"text", texts[i]}}.dump(
            -1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace lockstep::train
