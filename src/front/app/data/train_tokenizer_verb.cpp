// `lockstep data train-tokenizer`: a byte-level BPE tokenizer from text, JSONL or Parquet files.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/progress_bar.h"
#include "base/text.h"
#include "front/app/data/data_verbs.h"
#include "front/app/flags.h"
#include "front/tokenize/train.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* chatml = R"({%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
{%- else %}
{{- message['content'] + '<|im_end|>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %}
)";

struct TokenizerWish {
  std::vector<std::string> input, special = {"<|endoftext|>"};
  std::string output, chat_template;
  tokenize::TrainTokenizerOptions options;
};

void describe(CLI::App& app, TokenizerWish& wish) {
  app.add_option("--input", wish.input, "text files, JSONL files (.jsonl, .ndjson) or Parquet files (.parquet)")->required();
  app.add_option("--vocab-size", wish.options.training.vocab_size, "tokens to have in the end, the 256 bytes and special tokens included")
      ->required();
  app.add_option("--output", wish.output, "folder for tokenizer.json and tokenizer_config.json")->required();
  app.add_option("--special", wish.special, "special tokens; the first ends a text")->capture_default_str();
  app.add_option("--chat-template", wish.chat_template, "chatml, or a file with a template");
  app.add_option("--min-frequency", wish.options.training.min_frequency, "how often a pair must be seen to become a token")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--field", wish.options.inputs.field, "the field of a JSON object that holds a text or a list of messages")
      ->capture_default_str();
  app.add_flag("--skip-bad", wish.options.inputs.skip_bad, "leave out lines that cannot be read, and count them");
}

// ChatML brings its own tokens; the one that ends a turn ends generation.
void choose_template(TokenizerWish& wish) {
  auto& options = wish.options;
  options.training.special = wish.special;
  if (!wish.special.empty()) options.eos = wish.special.front();
  if (wish.chat_template.empty()) return;
  if (wish.chat_template != "chatml") {
    options.chat_template = base::read_text(wish.chat_template);
    [[maybe_unused]] const text::ChatTemplate usable(options.chat_template, {}, wish.chat_template);  // refuses one that is not
    return;
  }
  options.chat_template = chatml;
  for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
    auto& special = options.training.special;
    if (std::find(special.begin(), special.end(), token) == special.end()) special.emplace_back(token);
  }
  options.eos = "<|im_end|>";
}

void check(const TokenizerWish& wish) {
  const auto& special = wish.options.training.special;
  for (std::size_t i = 0; i < special.size(); ++i) {
    if (special[i].empty()) throw base::usage_error("data train-tokenizer", "--special has an empty token.");
    if (std::find(special.begin(), special.begin() + static_cast<std::ptrdiff_t>(i), special[i]) !=
        special.begin() + static_cast<std::ptrdiff_t>(i))
      throw base::usage_error("data train-tokenizer", "--special names {} twice.", special[i]);
  }
  const auto least = 256 + static_cast<std::int64_t>(special.size());
  if (wish.options.training.vocab_size < least || wish.options.training.vocab_size > 10'000'000) {
    throw base::usage_error(
        "data train-tokenizer",
        "--vocab-size {} cannot be: the 256 bytes and {} special tokens alone are {}. Take {} to 10000000; 8000 to 128000 is usual.",
        wish.options.training.vocab_size, special.size(), least, least);
  }
}

}  // namespace

int run_data_train_tokenizer(std::span<const std::string> args) {
  TokenizerWish wish;
  CLI::App app{"Learns a byte-level BPE tokenizer from text and writes a folder that transformers loads too.",
               "lockstep data train-tokenizer"};
  describe(app, wish);
  if (!read_flags(app, args, "data train-tokenizer")) return 0;
  wish.options.inputs.files.assign(wish.input.begin(), wish.input.end());
  wish.options.inputs.messages = true;
  wish.options.output = wish.output;
  choose_template(wish);
  check(wish);

  const std::int64_t start = base::now_ns();
  tokenize::Totals totals;
  {
    base::ProgressBar bar;
    totals = tokenize::train_tokenizer(wish.options, [&](const tokenize::Totals& now) {
      bar.show(now.bytes_read, now.bytes, now.bytes_read == now.bytes ? "joining pairs" : "counting words");
    });
  }
  const auto made = text::Tokenizer::open(wish.output);
  if (totals.bad_lines > 0) fmt::print("left out {} lines that could not be read\n", totals.bad_lines);
  fmt::print("{}: {} tokens from {} of text in {:.1f} s\n", wish.output, made->size(), base::human_bytes(totals.bytes_read),
             base::seconds_since(start));
  if (made->size() < wish.options.training.vocab_size) {
    fmt::print("fewer than --vocab-size {}: the text has no more pairs that occur {} times; more text gives more tokens\n",
               wish.options.training.vocab_size, wish.options.training.min_frequency);
  }
  return 0;
}

}  // namespace lockstep::app
