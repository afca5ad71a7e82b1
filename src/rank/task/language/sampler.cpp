// Goes on from a run's prompts, with a tokenizer that is read meanwhile.
#include "rank/task/language/sampler.h"

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>

#include "rank/task/language/generator.h"

namespace lockstep::task {
namespace {

class TextSampler final : public Sampler {
 public:
  TextSampler(const config::RunConfig& config, std::shared_ptr<const data::Vocabulary> vocabulary, bool writes, at::Device device)
      : config_(config),
        device_(device),
        vocabulary_(std::move(vocabulary)),
        prompts_(config.monitor.sample_prompts.empty() ? std::vector{config.monitor.sample_prompt} : config.monitor.sample_prompts) {
    if (writes) reading_ = std::async(std::launch::async, [this] { return language_of_run(config_, vocabulary_.get()); });
  }

  const std::vector<std::string>& prompts() const override { return prompts_; }

  void look() override {
    if (reading_.valid() && reading_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) language_ = reading_.get();
  }

  std::vector<std::string> write(model::Stage& model, std::span<const std::size_t> chosen) override {
    if (reading_.valid()) language_ = reading_.get();
    const auto context = config_.model.max_seq_len;
    std::vector<Prompt> given;
    for (const std::size_t i : chosen) {
      Prompt prompt{
          language_->can_chat() ? language_->encode_chat({{{"role", "user"}, {"content", prompts_[i]}}}) : language_->encode(prompts_[i]),
          i};
      // What does not fit is left out at its start: a sample must not end a run.
      if (std::int64_t(prompt.tokens.size()) >= context)
        prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - (context + 1) / 2);
      given.push_back(std::move(prompt));
    }
    Generator generator(model::Decoder::of(model), *language_, device_,
                        {.sampling = {.temperature = config_.monitor.sample_temperature, .seed = config_.trainer.seed},
                         .max_tokens = config_.monitor.sample_tokens,
                         .context = context});
    const auto completions = generator.run(given);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      texts.push_back(language_->can_chat() ? completions[i].text : prompts_[chosen[i]] + completions[i].text);
    return texts;
  }

 private:
  config::RunConfig config_;
  at::Device device_;
  std::shared_ptr<const data::Vocabulary> vocabulary_;
  std::vector<std::string> prompts_;
  std::shared_ptr<const Language> language_;  // where this rank writes and it has been read
  std::future<std::shared_ptr<const Language>> reading_;
};

}  // namespace

std::unique_ptr<Sampler> make_text_sampler(const config::RunConfig& config, std::shared_ptr<const data::Vocabulary> vocabulary, bool writes,
                                           at::Device device) {
  return std::make_unique<TextSampler>(config, std::move(vocabulary), writes, device);
}

}  // namespace lockstep::task
