// Vocabularies: a tokenizer's, and those that need no file: bytes, bare numbers, and the words of the built-in stories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "rank/data/data.h"
#include "corpus/stories/stories.h"

namespace lockstep::data {

// Text is its bytes.
std::shared_ptr<const Vocabulary> byte_vocabulary();
// Token files come without a tokenizer: text is numbers ("17 4 99"); other text is taken as bytes.
std::shared_ptr<const Vocabulary> number_vocabulary(std::int64_t size);

// A tokenizer.json. Special tokens are left out of what is read back; numbers past what the model has are none of it.
std::shared_ptr<const Vocabulary> tokenizer_vocabulary(const std::filesystem::path& folder_or_file, std::int64_t vocab_size);

// The words of the built-in stories.
std::shared_ptr<const Vocabulary> story_vocabulary(std::shared_ptr<const corpus::StoryVocabulary> words);

}  // namespace lockstep::data
