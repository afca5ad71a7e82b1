// A model's tokenizer and chat template as a language.
#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash/content_hash.h"
#include "base/mutex.h"
#include "text/language.h"
#include "text/template_source.h"

namespace lockstep::text {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& where) {
  if (fs::is_directory(where)) return where;
  return where.has_parent_path() ? where.parent_path() : fs::path(".");
}

// The tokenizer is parsed when the first text is to be turned into tokens, which a run on prepared data may never do.
class ModelLanguage final : public Language {
 public:
  ModelLanguage(const fs::path& where, const std::string& chat_template)
      : where_(where), folder_(folder_of(where)), tokenizer_(where), named_(read_tokenizer_files(folder_)) {
    template_ = {.source = named_.chat_template, .name = named_.chat_template_from};
    if (!chat_template.empty()) template_ = read_template(chat_template);
  }

  Encoded encode(std::string_view text, SpecialTokens special) const override { return tokenizer_.get().encode_with_spans(text, special); }
  std::string decode(std::span<const std::int32_t> tokens) const override { return tokenizer_.get().decode(tokens, /*skip_special=*/true); }

  std::vector<std::int32_t> encode_prompt(std::string_view text) const override {
    const Tokenizer& tokenizer = tokenizer_.get();
    auto tokens = tokenizer.encode(text, SpecialTokens::add);
    const auto plain = tokenizer.encode(text, SpecialTokens::leave_out);
    // A tokenizer that ends every text would leave nothing to go on from.
    const auto& ends = opened().files.end_tokens;
    if (tokens.size() > plain.size() && std::find(ends.begin(), ends.end(), tokens.back()) != ends.end() && tokens.size() > 1 &&
        (plain.empty() || plain.back() != tokens.back()))
      tokens.pop_back();
    if (!tokens.empty()) return tokens;
    for (const std::string* start : {&named_.bos, &named_.eos}) {
      if (const auto token = start->empty() ? std::nullopt : tokenizer.find(*start)) return {*token};
    }
    throw base::data_error("generate",
                           "the prompt is empty, and the tokenizer of {} names no token that a text begins with. Give a prompt.",
                           folder_.string());
  }

  std::string spell(std::int32_t token) const override { return tokenizer_.get().token(token); }
  std::int64_t size() const override { return 0; }
  std::optional<std::int32_t> end() const override { return opened().end; }
  std::vector<std::int32_t> end_tokens() const override { return opened().files.end_tokens; }
  std::optional<std::int32_t> hidden_token(std::string_view text) const override {
    const auto token = tokenizer_.get().find(text);
    return token && tokenizer_.get().is_special(*token) ? token : std::nullopt;
  }
  std::size_t memory() const override { return 6; }

  bool has_template() const override { return !template_.source.empty(); }
  Rendered render(const nlohmann::ordered_json& messages, const RenderOptions& options, Answers answers) const override {
    const ChatTemplate& chat = *opened().chat_template;
    return answers == Answers::find ? chat.render_marked(messages, options) : chat.render_plain(messages, options);
  }
  std::vector<std::int32_t> encode_chat(const nlohmann::ordered_json& messages) const override {
    if (!has_template()) {
      throw base::data_error("generate",
                             "{} has no chat template (tokenizer_config.json, chat_template.jinja). Give a prompt instead of messages.",
                             folder_.string());
    }
    const std::string text = opened().chat_template->render(messages, {.add_generation_prompt = true});
    return tokenizer_.get().encode(text, SpecialTokens::leave_out);
  }

  std::string name() const override { return where_.string(); }
  // Prepared data is found by it, without the tokenizer being parsed.
  std::string identity() const override {
    base::ContentHash hash;
    hash.add(base::read_text(tokenizer_.file())).add(template_.source);
    hash.add(named_.bos).add(named_.eos).add(named_.pad).add(named_.unk);
    // Which tokens end an answer says one of these; where answers end is part of what is trained.
    for (const char* name : {"generation_config.json", "config.json"}) {
      if (fs::is_regular_file(folder_ / name)) hash.add(name).add(base::read_text(folder_ / name));
    }
    return hash.hex();
  }
  void read() const override { opened(); }

 private:
  struct Opened {
    TokenizerFiles files;
    std::optional<std::int32_t> end;
    std::unique_ptr<const ChatTemplate> chat_template;
  };
  const Opened& opened() const {
    if (const Opened* ready = ready_.load(std::memory_order_acquire)) return *ready;
    const base::Lock lock(opening_);
    if (!opened_) {
      auto made = std::make_unique<Opened>();
      made->files = read_tokenizer_files(folder_, tokenizer_.get());
      if (!made->files.eos.empty()) made->end = tokenizer_.get().find(made->files.eos);
      if (has_template()) made->chat_template = std::make_unique<const ChatTemplate>(template_.source, made->files, template_.name);
      opened_ = std::move(made);
    }
    ready_.store(opened_.get(), std::memory_order_release);
    return *opened_;
  }

  fs::path where_, folder_;
  LazyTokenizer tokenizer_;
  TokenizerFiles named_;  // what is known without the tokenizer
  TemplateSource template_;
  mutable base::Mutex opening_;
  mutable std::unique_ptr<const Opened> opened_ LOCKSTEP_GUARDED_BY(opening_);
  mutable std::atomic<const Opened*> ready_ = nullptr;
};

}  // namespace

std::shared_ptr<const Language> model_language(const std::filesystem::path& folder_or_file, const std::string& chat_template) {
  return std::make_shared<ModelLanguage>(folder_or_file, chat_template);
}

}  // namespace lockstep::text
