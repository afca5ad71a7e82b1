// `lockstep data inspect`: what the model will see of a dataset, and which of it is trained.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "front/app/data/data_inspect.h"
#include "front/app/data/data_verbs.h"
#include "front/job/prepare_data.h"
#include "front/show/tokenizing.h"
#include "corpus/formats/encode.h"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* inspect_help = R"(lockstep data inspect --data FILE [-f FILE] [--model DIR] [settings]

Tokenizes records as `lockstep train` with the same settings would, and shows what is trained: counts, lengths, what was cut or
skipped, duplicates, how well packing would fill rows, and the first samples with their trained tokens marked.

  lockstep data inspect --model DIR --data chat.jsonl
  lockstep data inspect --tokenizer DIR --data chat.jsonl --seq-len 2048 data.train_on=last --samples 10

  --samples N   show so many records (3)
  --tokens      one token a line, with its number
  --no-color    mark trained text with [[ ]] instead of color, as where the output is no terminal
  --json        one object of JSON

)";

struct InspectWish {
  std::int64_t samples = 3;
  bool tokens = false, color = ::isatty(STDOUT_FILENO) == 1, json = false;
  std::vector<std::string> settings;  // everything else
};

InspectWish read_wish(std::span<const std::string> args) {
  InspectWish wish;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& argument = args[i];
    if (argument == "--samples" || argument.starts_with("--samples=")) {
      const bool joined = argument.size() > 9;
      const std::string value = joined ? argument.substr(10) : i + 1 < args.size() ? args[++i] : "";
      const auto number = base::parse_integer(value);
      if (!number || *number < 0) throw base::usage_error("data", "--samples {} is no number of records.", value);
      wish.samples = *number;
    } else if (argument == "--tokens") {
      wish.tokens = true;
    } else if (argument == "--no-color" || argument == "--no-colour") {
      wish.color = false;
    } else if (argument == "--json") {
      wish.json = true;
    } else {
      wish.settings.push_back(argument);
    }
  }
  return wish;
}

// What would steer a terminal becomes a dot.
std::string harmless(std::string_view text) {
  std::string safe(text);
  for (char& c : safe) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) c = '.';
  }
  return safe;
}

// One record, tokenized.
struct Shown {
  std::string place;
  corpus::Tokenized whole;
  corpus::Fitted fitted;
  std::string problem;  // it cannot be read: why
};

std::string_view text_of(const corpus::Tokenized& whole, std::size_t token) {
  const auto [begin, end] = whole.spans[token];
  return std::string_view(whole.text).substr(begin, end - begin);
}

// Text as the model reads it, trained stretches marked. Tokens that share a character are shown with the first of them.
std::string marked_text(const Shown& shown, const text::Language& language, bool color) {
  const char* open = color ? "\033[1;32m" : "[[";
  const char* close = color ? "\033[0m" : "]]";
  std::string text;
  std::uint32_t written = 0;
  bool inside = false;
  for (std::size_t i = 0; i < shown.whole.tokens.size(); ++i) {
    const bool trained = i > 0 && shown.whole.trained[i] != 0;
    const auto [begin, end] = shown.whole.spans[i];
    if (trained != inside) text += trained ? open : close;
    inside = trained;
    if (begin == end) text += harmless(language.spell(shown.whole.tokens[i]));  // added by the tokenizer, or the end
    const std::uint32_t from = std::max(begin, written);
    if (from < end) text += harmless(std::string_view(shown.whole.text).substr(from, end - from));
    written = std::max(written, end);
  }
  return inside ? text + close : text;
}

std::string token_lines(const Shown& shown, const text::Language& language, bool color) {
  std::string text;
  for (std::size_t i = 0; i < shown.whole.tokens.size(); ++i) {
    const bool trained = i > 0 && shown.whole.trained[i] != 0;
    const std::string_view said = text_of(shown.whole, i);
    text += fmt::format(
        "{}{:>6} {:>8}  {:<7}  {}{}\n", color && trained ? "\033[32m" : "", i, shown.whole.tokens[i], trained ? "trained" : "",
        said.empty() ? language.spell(shown.whole.tokens[i]) : Json(std::string(said)).dump(-1, ' ', false, Json::error_handler_t::replace),
        color && trained ? "\033[0m" : "");
  }
  return text;
}

std::string fate_of(const corpus::Fitted& fitted, std::size_t tokens) {
  switch (fitted.fate) {
    case corpus::Fate::whole: return "";
    case corpus::Fate::cut: return fmt::format(", {} of them cut off", tokens - (fitted.pieces[0].end - fitted.pieces[0].begin));
    case corpus::Fate::pieces: return fmt::format(", in {} pieces", fitted.pieces.size());
    case corpus::Fate::too_long: return ", too long: skipped";
    case corpus::Fate::untrained: return ", nothing of it can be trained: skipped";
  }
  return "";
}

std::string to_text(const Shown& shown, const text::Language& language, const InspectWish& wish) {
  if (!shown.problem.empty()) return fmt::format("\n{}: {}\n", shown.place, shown.problem);
  const auto trained = std::count(shown.whole.trained.begin() + (shown.whole.trained.empty() ? 0 : 1), shown.whole.trained.end(), 1);
  return fmt::format("\n{}: {} tokens, {} trained{}\n{}\n", shown.place, shown.whole.tokens.size(), trained,
                     fate_of(shown.fitted, shown.whole.tokens.size()),
                     wish.tokens ? token_lines(shown, language, wish.color) : marked_text(shown, language, wish.color));
}

Json to_json(const Shown& shown, const text::Language& language) {
  if (!shown.problem.empty()) return {{"place", shown.place}, {"problem", shown.problem}};
  Json tokens = Json::array();
  for (std::size_t i = 0; i < shown.whole.tokens.size(); ++i) {
    tokens.push_back({{"token", shown.whole.tokens[i]},
                      {"text", std::string(text_of(shown.whole, i))},
                      {"spelled", language.spell(shown.whole.tokens[i])},
                      {"trained", i > 0 && shown.whole.trained[i] != 0}});
  }
  Json pieces = Json::array();
  for (const auto& [begin, end] : shown.fitted.pieces) pieces.push_back({begin, end});
  return {{"place", shown.place}, {"text", shown.whole.text}, {"pieces", pieces}, {"tokens", tokens}};
}

std::vector<Shown> first_records(const corpus::Files& files, const config::DataConfig& data,
                                 const std::shared_ptr<const text::Language>& language, std::int64_t seq_len, std::int64_t count) {
  const corpus::Encoder encoder(language, data, corpus::choose_format(files, data), seq_len);
  corpus::Scanner scanner(files);
  std::vector<Shown> all;
  while (static_cast<std::int64_t>(all.size()) < count) {
    const auto record = scanner.next();
    if (!record) break;
    Shown shown{.place = files.place(*record)};
    try {
      shown.whole = encoder.encode(files.parse(*record));
      shown.fitted = encoder.fit(shown.whole);
    } catch (const corpus::Unreadable& problem) {  // only where they are skipped: else preparing has stopped at it
      shown.problem = problem.what();
    }
    all.push_back(std::move(shown));
  }
  return all;
}

// With a tokenizer and no model, --seq-len alone says how long a sample may be: the small model that a bare `train` would make is not
// meant.
config::RunConfig load_settings(const config::Request& request) {
  if (!request.file) {
    config::Request lifted = request;
    lifted.assignments.insert(lifted.assignments.begin(), {"model.max_seq_len", "1048576", "--seq-len"});
    const config::Settings settings = config::load(lifted);
    const bool asked = settings.source("data.seq_len").origin != config::Origin::derived;
    if (asked && settings.values.model.path.empty()) return settings.values;
  }
  return config::load(request).values;
}

}  // namespace

int run_data_inspect(std::span<const std::string> args) {
  const InspectWish wish = read_wish(args);
  const config::CommandLine line = config::parse_command_line(wish.settings);
  if (line.help) {
    std::fputs((inspect_help + config::flags_help()).c_str(), stdout);
    return 0;
  }
  config::expect_no_leftover(line, "lockstep data inspect");
  const config::RunConfig config = load_settings(line.request);
  if (config.data.path.empty()) throw base::usage_error("data", "which data? Name a file of records with --data.");
  if (corpus::kind_of(config.data) != config::DataKind::records) {
    throw base::usage_error("data",
                            "{} holds no records (kind {}): every token of it is trained. Name the kind with data.kind=records if it does.",
                            config.data.path, config::name_of(corpus::kind_of(config.data)));
  }
  const std::int64_t seq_len = config.data.seq_len > 0 ? config.data.seq_len : config.model.max_seq_len;
  const auto language = corpus::language_of_records(config.data, config.model);
  show::TokenizingBar bar;
  const auto prepared = job::prepare_part(config.data, seq_len, language, bar.listener()).prepared;
  bar.clear();
  const corpus::Files files(config.data.path);
  const Inspection inspection = inspect(files, *prepared.cache, seq_len);
  const std::vector<Shown> shown = first_records(files, config.data, language, seq_len, wish.samples);
  if (wish.json) {
    Json json = to_json(inspection);
    for (const Shown& one : shown) json["shown"].push_back(to_json(one, *language));
    std::puts(json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  std::fputs(to_text(inspection).c_str(), stdout);
  for (const Shown& one : shown) std::fputs(to_text(one, *language, wish).c_str(), stdout);
  return 0;
}

}  // namespace lockstep::app
