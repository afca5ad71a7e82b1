// The words of a model: its tokenizer and chat template.
#include "corpus/formats/words.h"

#include <atomic>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash/content_hash.h"
#include "base/mutex.h"
#include "text/template_source.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;

// What decides which tokens a text becomes is read at once, because prepared data is found by it; the tokenizer is parsed when the first
// text is to be turned into tokens, which a run on prepared data never does.
class ModelWords final : public Words {
 public:
  ModelWords(const fs::path& where, const config::DataConfig& data) : where_(where), tokenizer_(where) {
    const bool is_folder = fs::is_directory(where);
    folder_ = is_folder ? where : where.parent_path();
    if (folder_.empty()) folder_ = ".";
    const text::TokenizerFiles files = text::read_tokenizer_files(folder_);
    template_source_ = files.chat_template;
    template_from_ = folder_.string();
    if (!data.chat_template.empty()) {
      text::TemplateSource given = text::read_template(data.chat_template);
      template_source_ = std::move(given.source);
      template_from_ = std::move(given.name);
    }
    base::ContentHash hash;
    hash.add(base::read_text(tokenizer_.file())).add(template_source_);
    hash.add(files.bos).add(files.eos).add(files.pad).add(files.unk);
    // Which tokens end an answer says one of these; where answers end is part of what is trained.
    for (const char* name : {"generation_config.json", "config.json"}) {
      if (fs::is_regular_file(folder_ / name)) hash.add(name).add(base::read_text(folder_ / name));
    }
    identity_ = hash.hex();
  }

  text::Encoded encode(std::string_view text, text::SpecialTokens special) const override {
    return tokenizer_.get().encode_with_spans(text, special);
  }
  bool has_template() const override { return !template_source_.empty(); }
  text::Rendered render(const nlohmann::ordered_json& messages, const text::RenderOptions& options, Answers answers) const override {
    const text::ChatTemplate& chat = *opened().chat_template;
    return answers == Answers::find ? chat.render_marked(messages, options) : chat.render_plain(messages, options);
  }
  std::optional<std::int32_t> end() const override { return opened().end; }
  std::string spell(std::int32_t token) const override { return tokenizer_.get().token(token); }
  std::string name() const override { return where_.string(); }
  std::string identity() const override { return identity_; }

 private:
  struct Opened {
    std::optional<std::int32_t> end;
    std::unique_ptr<const text::ChatTemplate> chat_template;
  };
  const Opened& opened() const {
    if (const Opened* ready = ready_.load(std::memory_order_acquire)) return *ready;
    const base::Lock lock(opening_);
    if (!opened_) {
      const text::TokenizerFiles files = text::read_tokenizer_files(folder_, tokenizer_.get());
      auto made = std::make_unique<Opened>();
      if (!files.eos.empty()) made->end = tokenizer_.get().find(files.eos);
      if (has_template()) made->chat_template = std::make_unique<const text::ChatTemplate>(template_source_, files, template_from_);
      opened_ = std::move(made);
    }
    ready_.store(opened_.get(), std::memory_order_release);
    return *opened_;
  }

  fs::path where_, folder_;
  text::LazyTokenizer tokenizer_;
  std::string template_source_, template_from_, identity_;
  mutable base::Mutex opening_;
  mutable std::unique_ptr<const Opened> opened_ LOCKSTEP_GUARDED_BY(opening_);
  mutable std::atomic<const Opened*> ready_ = nullptr;
};

}  // namespace

std::string tokenizer_path(const config::DataConfig& data, const config::ModelConfig& model) {
  return data.tokenizer.empty() ? model.path : data.tokenizer;
}

std::shared_ptr<const Words> open_words(const config::DataConfig& data, const config::ModelConfig& model) {
  const std::string where = tokenizer_path(data, model);
  if (where.empty()) {
    throw base::data_error(
        "data", "{} holds records of text, which need a tokenizer. Give the model's folder with --model, or a tokenizer with --tokenizer.",
        data.path);
  }
  return std::make_shared<ModelWords>(where, data);
}

}  // namespace lockstep::corpus
