// `lockstep data tokenize`: text, JSONL or Parquet files to a .bin file of token numbers.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/progress_bar.h"
#include "base/text.h"
#include "front/app/data/data_verbs.h"
#include "front/app/flags.h"
#include "front/tokenize/tokenize.h"
#include "text/tokenizer.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

struct TokenizeWish {
  std::string tokenizer, output, token_type = "u32";
  std::vector<std::string> input;
  tokenize::InputOptions inputs;
  bool append_eos = false, prepend_bos = false;
  int threads = 0;
};

void describe(CLI::App& app, TokenizeWish& wish) {
  app.add_option("--tokenizer", wish.tokenizer, "folder with a tokenizer.json, a model's folder say")->required();
  app.add_option("--input", wish.input, "text files, JSONL files (.jsonl, .ndjson) or Parquet files (.parquet)")->required();
  app.add_option("--output", wish.output, "the .bin file to write")->required();
  app.add_option("--token-type", wish.token_type, "u32, or u16 for vocabularies of up to 65536 tokens")->capture_default_str();
  app.add_option("--field", wish.inputs.field, "the field of a JSON object, or the column, that holds the text")->capture_default_str();
  app.add_flag("--split-lines", wish.inputs.split_lines, "text files: every line is a document, not every file");
  app.add_flag("--append-eos", wish.append_eos, "put the tokenizer's eos token behind every document");
  app.add_flag("--prepend-bos", wish.prepend_bos, "put the tokenizer's bos token before every document");
  app.add_flag("--skip-bad", wish.inputs.skip_bad, "leave out lines that cannot be read, and count them");
  app.add_option("--threads", wish.threads, "0: one for each core")->check(CLI::NonNegativeNumber)->capture_default_str();
}

int token_bytes(const std::string& type, std::int64_t vocabulary) {
  if (type == "u32") return 4;
  if (type != "u16") throw base::usage_error("data tokenize", "--token-type {} is neither u16 nor u32.", type);
  if (vocabulary > 65536) {
    throw base::usage_error(
        "data tokenize", "--token-type u16 holds numbers up to 65535, but this tokenizer has {} tokens. Use --token-type u32.", vocabulary);
  }
  return 2;
}

std::int32_t special_token(const text::Tokenizer& tokenizer, const std::string& name, const char* kind, const TokenizeWish& wish) {
  const auto number = name.empty() ? std::nullopt : tokenizer.find(name);
  if (number) return *number;
  throw base::usage_error("data tokenize",
                          "--{} needs to know the {} token, but {} names none. Give the folder that also has tokenizer_config.json.",
                          kind == std::string_view("eos") ? "append-eos" : "prepend-bos", kind, wish.tokenizer);
}

std::string megabytes_per_second(std::uint64_t bytes, double seconds) {
  return fmt::format("{:.1f} MB/s", seconds > 0 ? static_cast<double>(bytes) / 1e6 / seconds : 0.0);
}

std::string counted(std::int64_t count, std::string_view one) { return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s"); }

}  // namespace

int run_data_tokenize(std::span<const std::string> args) {
  TokenizeWish wish;
  CLI::App app{"Turns text into a .bin file of tokens, on all cores. Train on it with --data FILE.bin.", "lockstep data tokenize"};
  describe(app, wish);
  if (!read_flags(app, args, "data tokenize")) return 0;
  wish.inputs.files.assign(wish.input.begin(), wish.input.end());

  const auto tokenizer = text::Tokenizer::open(wish.tokenizer);
  const fs::path folder = fs::is_directory(wish.tokenizer) ? fs::path(wish.tokenizer) : fs::path(wish.tokenizer).parent_path();
  const text::TokenizerFiles beside = text::read_tokenizer_files(folder, *tokenizer);
  tokenize::TokenizeOptions options{.inputs = wish.inputs, .output = wish.output, .threads = wish.threads};
  options.token_bytes = token_bytes(wish.token_type, tokenizer->size());
  if (wish.append_eos) options.after_document = special_token(*tokenizer, beside.eos, "eos", wish);
  if (wish.prepend_bos) options.before_document = special_token(*tokenizer, beside.bos, "bos", wish);

  const std::int64_t start = base::now_ns();
  tokenize::Totals totals;
  {
    base::ProgressBar bar;
    totals = tokenize::tokenize_files(*tokenizer, options, [&](const tokenize::Totals& now) {
      bar.show(now.bytes_read, now.bytes,
               fmt::format("{}  {} tokens", megabytes_per_second(now.bytes_read, base::seconds_since(start)),
                           base::human_count(static_cast<double>(now.tokens))));
    });
  }
  const double seconds = base::seconds_since(start);
  if (totals.bad_lines > 0) fmt::print("left out {} that could not be read\n", counted(totals.bad_lines, "line"));
  fmt::print("{}: {}, {} of {} bits, {} in {:.1f} s, {}\n", wish.output, counted(totals.documents, "document"),
             counted(totals.tokens, "token"), 8 * options.token_bytes, base::human_bytes(totals.bytes_read), seconds,
             megabytes_per_second(totals.bytes_read, seconds));
  fmt::print("train on it with --data {}{} and a model.vocab_size of {} or more\n", wish.output,
             options.token_bytes == 2 ? " data.token_type=u16" : "", tokenizer->size());
  return 0;
}

}  // namespace lockstep::app
