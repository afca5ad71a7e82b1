// The words of a model: its tokenizer and chat template.
#include "records/words.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "records/content_hash.h"

namespace lockstep::records {
namespace {

namespace fs = std::filesystem;

class ModelWords final : public Words {
 public:
  ModelWords(const fs::path& where, const config::DataConfig& data) : where_(where), tokenizer_(text::Tokenizer::open(where)) {
    const bool is_folder = fs::is_directory(where);
    const fs::path folder = is_folder ? where : where.parent_path();
    files_ = text::read_tokenizer_files(folder.empty() ? fs::path(".") : folder, *tokenizer_);
    if (!files_.eos.empty()) end_ = tokenizer_->find(files_.eos);
    std::string source = files_.chat_template, source_name = folder.string();
    if (!data.chat_template.empty()) {
      if (!fs::is_regular_file(data.chat_template)) throw base::data_error("data", "data.chat_template={} is no file.", data.chat_template);
      source = base::read_text(data.chat_template);
      source_name = data.chat_template;
    }
    ContentHash hash;
    hash.add(base::read_text(is_folder ? where / "tokenizer.json" : where)).add(source);
    hash.add(files_.bos).add(files_.eos).add(files_.pad).add(files_.unk);
    identity_ = hash.hex();
    if (!source.empty()) template_ = std::make_unique<const text::ChatTemplate>(std::move(source), files_, source_name);
  }

  text::Encoded encode(std::string_view text, text::SpecialTokens special) const override {
    return tokenizer_->encode_with_spans(text, special);
  }
  bool has_template() const override { return template_ != nullptr; }
  text::Rendered render(const nlohmann::ordered_json& messages, const text::RenderOptions& options, Answers answers) const override {
    return answers == Answers::find ? template_->render_marked(messages, options) : template_->render_plain(messages, options);
  }
  std::optional<std::int32_t> end() const override { return end_; }
  std::string spell(std::int32_t token) const override { return tokenizer_->token(token); }
  std::string name() const override { return where_.string(); }
  std::string identity() const override { return identity_; }

 private:
  fs::path where_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::TokenizerFiles files_;
  std::optional<std::int32_t> end_;
  std::unique_ptr<const text::ChatTemplate> template_;
  std::string identity_;
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

}  // namespace lockstep::records
