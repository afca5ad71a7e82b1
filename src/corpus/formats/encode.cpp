// A token is trained where any of its text lies in an answer, as with transformers' assistant mask; the end of a turn belongs to the
// answer before it.
#include "corpus/formats/encode.h"

#include <algorithm>

#include "base/error.h"
#include "corpus/formats/render.h"

namespace lockstep::corpus {
namespace {

using config::RecordFormat;
using config::TrainOn;

bool any_trained(const Tokenized& whole, const Piece& piece) {
  const auto first = whole.trained.begin() + static_cast<std::ptrdiff_t>(std::min(piece.begin + 1, piece.end));
  return std::find(first, whole.trained.begin() + static_cast<std::ptrdiff_t>(piece.end), 1) !=
         whole.trained.begin() + static_cast<std::ptrdiff_t>(piece.end);
}

// The answers to train on, in order.
std::vector<text::TokenSpan> trained_answers(const text::Rendered& rendered, const Conversation& conversation, TrainOn train_on) {
  std::vector<text::TokenSpan> answers = rendered.answers;
  const bool weighted = std::find(conversation.trained.begin(), conversation.trained.end(), false) != conversation.trained.end();
  if (weighted) {
    if (answers.size() != conversation.trained.size()) {
      throw Unreadable(
          fmt::format("has {} assistant messages with weights, but the chat template marks {} answers: which is which cannot be told",
                      conversation.trained.size(), answers.size()));
    }
    std::vector<text::TokenSpan> kept;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (conversation.trained[i]) kept.push_back(answers[i]);
    }
    answers = std::move(kept);
  }
  if (train_on == TrainOn::last && answers.size() > 1) answers.erase(answers.begin(), answers.end() - 1);
  return answers;
}

}  // namespace

Encoder::Encoder(std::shared_ptr<const text::Language> language, const config::DataConfig& data, RecordFormat format, std::int64_t seq_len)
    : language_(std::move(language)),
      data_(data),
      format_(format),
      train_on_(data.train_on),
      longest_(static_cast<std::size_t>(seq_len) + 1) {
  if (train_on_ == TrainOn::automatic) train_on_ = format == RecordFormat::text ? TrainOn::all : TrainOn::responses;
  if (train_on_ == TrainOn::whole_chats) train_on_ = format == RecordFormat::prompt_completion ? TrainOn::responses : TrainOn::all;
  if (format == RecordFormat::text && train_on_ != TrainOn::all) {
    throw base::data_error(
        "data", "data.train_on is set to responses, but records of raw text have none. Use data.train_on=all, or another data.format.");
  }
  if ((format == RecordFormat::messages || format == RecordFormat::sharegpt) && !language_->has_template()) {
    throw base::data_error("data",
                           "the records are conversations, but {} comes without a chat template. Give one with data.chat_template=FILE, "
                           "or use the tokenizer of a chat model with --tokenizer.",
                           language_->name());
  }
  language_->end();  // parses tokenizer and template: what is wrong with them is told as such, not as a record that cannot be read
}

Tokenized Encoder::encode(const Json& record) const {
  const Content content = read_content(record, format_, data_, language_->has_template());
  if (const auto* conversation = std::get_if<Conversation>(&content)) return encode_conversation(*conversation);
  if (const auto* exchange = std::get_if<Exchange>(&content)) return encode_exchange(*exchange);
  return encode_text(std::get<PlainText>(content).text);
}

Tokenized Encoder::encode_conversation(const Conversation& conversation) const {
  if (!language_->has_template())
    throw Unreadable(
        fmt::format("holds messages, but {} comes without a chat template; give one with data.chat_template=FILE", language_->name()));
  text::Rendered rendered;
  try {
    rendered = render_conversation(*language_, conversation, train_on_ == TrainOn::all);
  } catch (const base::UserError& error) {  // the template's own refusal
    throw Unreadable(fmt::format("is refused by the chat template: {}", error.what()));
  }
  text::Encoded encoded = language_->encode(rendered.text, text::SpecialTokens::leave_out);
  Tokenized whole{std::move(rendered.text), std::move(encoded.tokens), std::move(encoded.spans), {}};
  if (train_on_ == TrainOn::all)
    whole.trained.assign(whole.tokens.size(), 1);
  else
    whole.trained = text::answer_mask(whole.spans, trained_answers(rendered, conversation, train_on_));
  return whole;
}

Tokenized Encoder::encode_exchange(const Exchange& exchange) const {
  Tokenized whole = encode_text(exchange.prompt + exchange.completion);
  if (train_on_ == TrainOn::all) return whole;
  for (std::size_t i = 0; i < whole.tokens.size(); ++i) {
    const bool added = whole.spans[i].begin == whole.spans[i].end;
    whole.trained[i] = (added ? i > 0 && i + 1 == whole.tokens.size() : whole.spans[i].end > exchange.prompt.size()) ? 1 : 0;
  }
  return whole;
}

Tokenized Encoder::encode_text(std::string text) const {
  text::Encoded encoded = language_->encode(text, text::SpecialTokens::add);
  Tokenized whole{std::move(text), std::move(encoded.tokens), std::move(encoded.spans), {}};
  if (const auto end = language_->end(); end && (whole.tokens.empty() || whole.tokens.back() != *end)) {
    whole.tokens.push_back(*end);
    const auto length = static_cast<std::uint32_t>(whole.text.size());
    whole.spans.push_back({length, length});
  }
  whole.trained.assign(whole.tokens.size(), 1);
  return whole;
}

Fitted Encoder::fit(const Tokenized& whole) const {
  const std::size_t count = whole.tokens.size();
  Fitted fitted;
  if (count <= longest_) {
    fitted.pieces = {{0, count}};
  } else if (format_ == RecordFormat::text && data_.too_long == config::TooLong::cut) {
    fitted.fate = Fate::pieces;
    // The last token of a piece is seen there only as a target; it starts the next one.
    for (std::size_t begin = 0; begin + 1 < count; begin += longest_ - 1)
      fitted.pieces.push_back({begin, std::min(begin + longest_, count)});
  } else {
    fitted.fate = Fate::cut;
    switch (data_.too_long) {
      case config::TooLong::cut: fitted.pieces = {{0, longest_}}; break;
      case config::TooLong::cut_start: fitted.pieces = {{count - longest_, count}}; break;
      case config::TooLong::skip: return {Fate::too_long, {}};
      case config::TooLong::error:
        throw Refused(fmt::format(
            "has {} tokens, more than data.seq_len={} takes. Raise data.seq_len, or set data.too_long to cut, cut_start or skip", count,
            longest_ - 1));
    }
  }
  std::erase_if(fitted.pieces, [&](const Piece& piece) { return !any_trained(whole, piece); });
  if (fitted.pieces.empty()) fitted.fate = Fate::untrained;
  return fitted;
}

}  // namespace lockstep::corpus
