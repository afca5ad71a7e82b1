// A tokenizer where one is named; else stories, numbers or bytes.
#include "corpus/formats/language.h"

#include <filesystem>

#include "base/error.h"
#include "corpus/prepare/prepare.h"
#include "corpus/stories/stories.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;

// None is named: a tokenizer.json in the folder that the program was started in is not meant.
bool is_there(const fs::path& tokenizer) {
  return !tokenizer.empty() && (fs::is_regular_file(tokenizer) || fs::exists(tokenizer / "tokenizer.json"));
}

}  // namespace

std::string tokenizer_path(const config::DataConfig& data, const config::ModelConfig& model) {
  return data.tokenizer.empty() ? model.path : data.tokenizer;
}

std::shared_ptr<const text::Language> language_of_records(const config::DataConfig& data, const config::ModelConfig& model) {
  const std::string where = tokenizer_path(data, model);
  if (where.empty()) {
    throw base::data_error(
        "data", "{} holds records of text, which need a tokenizer. Give the model's folder with --model, or a tokenizer with --tokenizer.",
        data.path);
  }
  return text::model_language(where, data.chat_template);
}

std::shared_ptr<const text::Language> language_of(const config::DataConfig& data, const config::ModelConfig& model) {
  const std::string tokenizer = tokenizer_path(data, model);
  if (is_there(tokenizer)) return text::model_language(tokenizer, data.chat_template);
  switch (kind_of(data)) {
    case config::DataKind::stories: return story_language(StoryMaker().vocabulary());
    case config::DataKind::random: return text::number_language(model.vocab_size);
    case config::DataKind::text: return tokenizer.empty() ? text::byte_language() : language_of_records(data, model);
    // Tokens need no tokenizer: a model folder may come without one, and then they are written as numbers.
    case config::DataKind::bin: return data.tokenizer.empty() ? text::number_language(model.vocab_size) : language_of_records(data, model);
    default: return language_of_records(data, model);
  }
}

}  // namespace lockstep::corpus
