// The loop over tokens: choose, read, hand out, decode. The only wait for the device is reading the chosen tokens.
#include "rank/task/language/generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::task {

std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::end: return "end";
    case Finish::stop: return "stop";
    case Finish::length: return "length";
    case Finish::context: return "context";
    case Finish::interrupted: return "interrupted";
  }
  return "";
}

// One text while it is written.
struct Generator::Row {
  std::size_t prompt;  // its number in the call
  const Prompt* from;
  text::TextStream text;
  Completion completion = {};
  bool over = false;
  std::int64_t position() const { return std::int64_t(from->tokens.size() + completion.tokens.size()); }
};

// The sequences of a batch that are still in it.
struct Generator::Rows {
  std::vector<Row> all;            // every sequence of the call
  std::vector<std::size_t> batch;  // which of them the model's rows are
  at::Tensor seen;                 // [batch, vocab] bool, where repetition is penalised

  std::vector<std::int64_t> running() const {
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < batch.size(); ++i)
      if (!all[batch[i]].over) rows.push_back(std::int64_t(i));
    return rows;
  }
  void keep(std::span<const std::int64_t> rows) {
    std::vector<std::size_t> kept;
    for (const auto row : rows) kept.push_back(batch[std::size_t(row)]);
    batch = std::move(kept);
  }
  std::vector<Completion> take() {
    std::vector<Completion> completions;
    for (Row& row : all) {
      row.completion.text = row.text.text();
      completions.push_back(std::move(row.completion));
    }
    return completions;
  }
};

Generator::Generator(model::Decoder& model, const text::Language& language, at::Device device, GenerateOptions options)
    : model_(model), language_(language), device_(device), options_(std::move(options)), ends_(language.end_tokens()) {
  std::erase_if(options_.stops, [&](const std::string& stop) {
    const auto token = language.hidden_token(stop);
    if (token) ends_.push_back(*token);
    return token || stop.empty();
  });
}

bool Generator::is_end(std::int32_t token) const { return std::find(ends_.begin(), ends_.end(), token) != ends_.end(); }

void Generator::check_fits(const Prompt& prompt) const {
  base::check(!prompt.tokens.empty(), "a prompt has a token");
  if (std::int64_t(prompt.tokens.size()) < options_.context) return;
  throw base::data_error("generate", "a prompt of {} tokens leaves no room for an answer: the model reads {}. Shorten it.",
                         prompt.tokens.size(), options_.context);
}

std::vector<Completion> Generator::run(std::span<const Prompt> prompts, const OnText& on_text) {
  if (prompts.empty()) return {};
  Rows rows;
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    check_fits(prompts[i]);
    rows.all.push_back({.prompt = i, .from = &prompts[i], .text = text::TextStream(language_, prompts[i].tokens, options_.stops)});
    rows.batch.push_back(i);
    counts.push_back(std::int64_t(prompts[i].tokens.size()));
  }
  const auto longest = *std::max_element(counts.begin(), counts.end());
  const at::Tensor tokens = at::zeros({std::int64_t(prompts.size()), longest}, at::kLong);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    std::copy(prompts[i].tokens.begin(), prompts[i].tokens.end(), tokens.mutable_data_ptr<std::int64_t>() + std::int64_t(i) * longest);
  model::DecodeCache cache = model_.make_cache(std::int64_t(prompts.size()));
  const bool level = std::all_of(counts.begin(), counts.end(), [&](auto count) { return count == longest; });
  const at::Tensor logits = model_.decode(tokens.to(device_), cache, level ? std::span<const std::int64_t>{} : counts);
  write(rows, cache, logits, on_text);
  return rows.take();
}

Completion Generator::go_on(const Prompt& prompt, const OnText& on_text) {
  check_fits(prompt);
  if (!remembered_) remembered_.emplace(model_.make_cache(1));
  const auto& tokens = prompt.tokens;
  // At least one token is decoded, for its logits.
  const auto alike = std::mismatch(tokens.begin(), tokens.end() - 1, remembered_tokens_.begin(), remembered_tokens_.end()).first;
  const auto known = std::int64_t(alike - tokens.begin());
  remembered_->cut(0, known);
  remembered_tokens_.clear();  // should anything below fail
  Rows rows;
  rows.all.push_back({.prompt = 0, .from = &prompt, .text = text::TextStream(language_, tokens, options_.stops)});
  rows.all.front().completion.reused = known;
  rows.batch = {0};
  const std::vector<std::int64_t> fresh(alike, tokens.end());
  write(rows, *remembered_, model_.decode(at::tensor(fresh, at::kLong).unsqueeze(0).to(device_), *remembered_), on_text);
  Completion completion = std::move(rows.take().front());
  remembered_tokens_ = tokens;
  remembered_tokens_.insert(remembered_tokens_.end(), completion.tokens.begin(), completion.tokens.end());
  remembered_tokens_.resize(std::size_t(remembered_->lengths()[0]));  // the last token was chosen, not read
  return completion;
}

at::Tensor Generator::choose(const Rows& rows, at::Tensor logits) const {
  if (language_.size() > 0 && language_.size() < logits.size(1)) logits = logits.narrow(1, 0, language_.size());
  logits = logits.to(at::kFloat);
  if (rows.seen.defined()) logits = penalize(logits, rows.seen.narrow(1, 0, logits.size(1)), options_.sampling.repetition_penalty);
  std::vector<double> draws;
  for (const std::size_t i : rows.batch)
    draws.push_back(uniform_draw(options_.sampling.seed, rows.all[i].from->key, rows.all[i].position()));
  return task::choose(logits, options_.sampling, draws);
}

void Generator::mark_prompts(Rows& rows, std::int64_t vocab) const {
  rows.seen = at::zeros({std::int64_t(rows.batch.size()), vocab}, at::TensorOptions().dtype(at::kBool).device(device_));
  for (std::size_t i = 0; i < rows.batch.size(); ++i) {
    const std::vector<std::int64_t> prompt(rows.all[rows.batch[i]].from->tokens.begin(), rows.all[rows.batch[i]].from->tokens.end());
    rows.seen.select(0, std::int64_t(i)).index_fill_(0, at::tensor(prompt, at::kLong).to(device_), true);
  }
}

// One token more; hand_out(piece) hears what can be read of it.
void Generator::add(Row& row, std::int32_t token, const std::function<bool(const std::string&)>& hand_out) const {
  const auto end = [&](Finish finish) {
    row.completion.finish = finish;
    row.over = true;
    hand_out(row.text.finish());
  };
  row.completion.tokens.push_back(token);
  if (is_end(token)) return end(Finish::end);
  const bool wanted = hand_out(row.text.push(token));
  if (row.text.stopped()) return end(Finish::stop);
  if (!wanted) return end(Finish::interrupted);
  if (std::int64_t(row.completion.tokens.size()) >= options_.max_tokens) return end(Finish::length);
  if (row.position() >= options_.context) end(Finish::context);
}

void Generator::write(Rows& rows, model::DecodeCache& cache, at::Tensor logits, const OnText& on_text) {
  if (options_.sampling.repetition_penalty != 1) mark_prompts(rows, logits.size(1));
  bool wanted = true;  // until the listener has heard enough: then every text ends with its next token
  for (;;) {
    at::Tensor next = choose(rows, logits);
    if (options_.follow) options_.follow(next);
    const at::Tensor chosen = next.cpu();
    for (std::size_t i = 0; i < rows.batch.size(); ++i) {
      Row& row = rows.all[rows.batch[i]];
      if (row.over) continue;
      add(row, std::int32_t(chosen.const_data_ptr<std::int64_t>()[i]), [&](const std::string& piece) {
        if (wanted && on_text && !piece.empty()) wanted = on_text(row.prompt, piece);
        return wanted;
      });
    }
    const std::vector<std::int64_t> running = rows.running();
    if (running.empty()) return;
    if (rows.seen.defined()) rows.seen.scatter_(1, next.unsqueeze(1), true);
    // Finished sequences are carried along until they are half: leaving them out copies the cache.
    if (running.size() * 2 <= rows.batch.size()) {
      cache.keep(running);
      rows.keep(running);
      const at::Tensor stay = at::tensor(running, at::kLong).to(device_);
      next = next.index_select(0, stay);
      if (rows.seen.defined()) rows.seen = rows.seen.index_select(0, stay);
    }
    logits = model_.decode(next.unsqueeze(1), cache);
  }
}

}  // namespace lockstep::task
