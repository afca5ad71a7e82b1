// Feeds the files to the trainer piece by piece and writes the folder.
#include "front/tokenize/train.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace lockstep::tokenize {
namespace {

constexpr std::size_t chunk_bytes = 256u << 10;

// Behind a line: for counting words it does not matter where a text is cut, as long as no word is.
std::optional<std::size_t> behind_line(std::string_view text, std::size_t middle) {
  for (const char* end : {"\n", " "}) {
    if (const std::size_t at = text.find(*end, middle); at != std::string_view::npos) return at + 1;
  }
  return std::nullopt;
}

// The documents of all files, one at a time.
class Documents {
 public:
  Documents(const InputOptions& options, const Progress& progress)
      : options_(options), progress_(progress), reader_(options, chunk_bytes, behind_line) {
    totals_.bytes = reader_.total_bytes();
  }

  std::optional<std::string_view> next() {
    while (at_ == texts_.size()) {
      const auto chunk = reader_.next();
      if (!chunk) return std::nullopt;
      texts_.clear();
      at_ = 0;
      totals_.bad_lines += for_each_document(*chunk, options_, [&](std::string_view text) { texts_.emplace_back(text); });
      totals_.documents += chunk->kind == ChunkKind::text_part ? (chunk->ends_document ? 1 : 0) : static_cast<std::int64_t>(texts_.size());
      totals_.bytes_read += chunk->file_bytes;
      progress_(totals_);
    }
    return texts_[at_++];
  }
  const Totals& totals() const { return totals_; }

 private:
  const InputOptions& options_;
  const Progress& progress_;
  ChunkReader reader_;
  std::vector<std::string> texts_;
  std::size_t at_ = 0;
  Totals totals_;
};

}  // namespace

Totals train_tokenizer(const TrainTokenizerOptions& options, const Progress& progress) {
  Documents documents(options.inputs, progress);
  const std::string tokenizer = text::train_bpe(options.training, [&] { return documents.next(); });
  if (documents.totals().documents == 0)
    throw base::data_error("data", "the input has no text, so there is nothing to learn a tokenizer from.");
  nlohmann::ordered_json config = {
      {"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_prefix_space", false}, {"clean_up_tokenization_spaces", false}};
  if (!options.eos.empty()) {
    config["bos_token"] = options.training.special.front();
    config["eos_token"] = options.eos;
    config["pad_token"] = options.training.special.front();
  }
  base::FileSystem& files = base::real_files();
  files.create_directories(options.output);
  base::write_text_atomically(files, options.output / "tokenizer.json", tokenizer);
  base::write_text_atomically(files, options.output / "tokenizer_config.json", config.dump(2) + "\n");
  if (!options.chat_template.empty()) base::write_text_atomically(files, options.output / "chat_template.jinja", options.chat_template);
  return documents.totals();
}

}  // namespace lockstep::tokenize
