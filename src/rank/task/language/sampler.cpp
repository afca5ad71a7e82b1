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
  TextSampler(const config::RunConfig& config, std::shared_ptr<const text::Language> language, bool writes, at::Device device,
              Follow follow)
      : config_(config),
        device_(device),
        follow_(std::move(follow)),
        language_(std::move(language)),
        prompts_(config.monitor.sample_prompts.empty() ? std::vector{config.monitor.sample_prompt} : config.monitor.sample_prompts) {
    if (writes) reading_ = std::async(std::launch::async, [this] { language_->read(); });
  }

  const std::vector<std::string>& prompts() const override { return prompts_; }

  void look() override {
    if (reading_.valid() && reading_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) reading_.get();
  }

  std::vector<std::string> write(model::Stage& model, std::span<const std::size_t> chosen) override {
    if (reading_.valid()) reading_.get();
    const auto context = config_.model.max_seq_len;
    std::vector<Prompt> given;
    for (const std::size_t i : chosen) {
      Prompt prompt{language_->has_template() ? language_->encode_chat({{{"role", "user"}, {"content", prompts_[i]}}})
                                              : language_->encode_prompt(prompts_[i]),
                    i};
      // What does not fit is left out at its start: a sample must not end a run.
      if (std::int64_t(prompt.tokens.size()) >= context)
        prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - (context + 1) / 2);
      given.push_back(std::move(prompt));
    }
    Generator generator(model::Decoder::of(model), *language_, device_,
                        {.sampling = {.temperature = config_.monitor.sample_temperature, .seed = config_.trainer.seed},
                         .max_tokens = config_.monitor.sample_tokens,
                         .context = context,
                         .follow = follow_});
    const auto completions = generator.run(given);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      texts.push_back(language_->has_template() ? completions[i].text : prompts_[chosen[i]] + completions[i].text);
    return texts;
  }

 private:
  config::RunConfig config_;
  at::Device device_;
  Follow follow_;
  std::shared_ptr<const text::Language> language_;
  std::vector<std::string> prompts_;
  std::future<void> reading_;  // where this rank writes
};

}  // namespace

std::unique_ptr<Sampler> make_text_sampler(const config::RunConfig& config, std::shared_ptr<const text::Language> language, bool writes,
                                           at::Device device, Follow follow) {
  return std::make_unique<TextSampler>(config, std::move(language), writes, device, std::move(follow));
}

}  // namespace lockstep::task
