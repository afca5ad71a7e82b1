// Each rank writes its share of the samples, then all texts go to everyone at once: a rank that is done early waits there, in step.
#include "rank/train/samples.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <nlohmann/json.hpp>

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

bool writes_samples(const Run& run) { return run.dataset.vocabulary && run.config.monitor.sample_tokens > 0; }

}  // namespace

Samples::Samples(const Run& run) : run_(run) {
  const bool has_share = std::size_t(run.mesh->everyone().rank()) < prompts_of(run.config.monitor).size();
  if (!writes_samples(run) || !has_share) return;
  reading_ = std::async(std::launch::async, [&run] { return task::language_of_run(run.config, run.dataset.vocabulary.get()); });
}

bool Samples::can_write() const { return writes_samples(run_); }

void Samples::look_at_tokenizer() {
  if (reading_.valid() && reading_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) language_ = reading_.get();
}

const task::Language& Samples::language() {
  if (reading_.valid()) language_ = reading_.get();
  return *language_;
}

// This rank's texts, empty where a sample is another's.
std::vector<std::string> Samples::own_share(const comm::Group& ranks, const std::vector<std::string>& prompts) {
  std::vector<std::string> texts(prompts.size());
  if (std::size_t(ranks.rank()) >= prompts.size()) return texts;
  const task::Language& language = this->language();
  const config::MonitorConfig& monitor = run_.config.monitor;
  const auto context = run_.config.model.max_seq_len;
  std::vector<std::size_t> mine;
  std::vector<task::Prompt> given;
  for (auto i = std::size_t(ranks.rank()); i < prompts.size(); i += std::size_t(ranks.size())) {
    task::Prompt prompt{
        language.can_chat() ? language.encode_chat({{{"role", "user"}, {"content", prompts[i]}}}) : language.encode(prompts[i]), i};
    // What does not fit is left out at its start: a sample must not end a run.
    if (std::int64_t(prompt.tokens.size()) >= context) prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - (context + 1) / 2);
    mine.push_back(i);
    given.push_back(std::move(prompt));
  }
  task::Generator generator(*run_.model, language, run_.world->device(),
                            {.sampling = {.temperature = monitor.sample_temperature, .seed = run_.config.trainer.seed},
                             .max_tokens = monitor.sample_tokens,
                             .context = context});
  const auto completions = generator.run(given);
  for (std::size_t i = 0; i < mine.size(); ++i)
    texts[mine[i]] = language.can_chat() ? completions[i].text : prompts[mine[i]] + completions[i].text;
  return texts;
}

void Samples::write(const comm::Group& ranks) {
  if (!writes_samples(run_)) return;
  const std::vector<std::string> prompts = prompts_of(run_.config.monitor);
  const std::vector<std::string> mine = own_share(ranks, prompts);
  ranks.meet("writing samples");
  const std::vector<std::string> texts = gather(ranks, mine);
  if (!run_.metrics) return;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    run_.metrics->write_event(
        nlohmann::json{{"event", "sample"}, {"step", run_.progress.step}, {"prompt", prompts[i]}, {"text", texts[i]}}.dump(
            -1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace lockstep::train
