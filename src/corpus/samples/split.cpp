// Splits, packs and counts samples.
#include "corpus/samples/split.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "config/config.h"
#include "corpus/files/find.h"
#include "corpus/prepare/prepare.h"
#include "corpus/samples/order.h"
#include "corpus/samples/packing.h"
#include "corpus/stories/stories.h"

namespace lockstep::corpus {
namespace {

// Samples that may share a row. Larger windows pack no tighter but take longer.
constexpr std::int64_t window = 1 << 16;
constexpr std::int64_t split_seed = 0x5e1d;

std::int64_t seq_len_of(const config::RunConfig& config) {
  return config.data.seq_len > 0 ? config.data.seq_len : config.model.max_seq_len;
}

std::int64_t count_of_records(const config::RunConfig& config, const Cache& cache) {
  const config::DataConfig& data = config.data;
  std::vector<std::uint32_t> chosen(static_cast<std::size_t>(cache.samples()));
  std::iota(chosen.begin(), chosen.end(), 0u);
  if (data.validation_path.empty()) chosen = split(cache, data.validation_fraction).training;
  const auto count = static_cast<std::int64_t>(chosen.size());
  if (!data.packing) return count;
  const auto length = [&](std::int64_t sample) {
    return static_cast<std::int64_t>(cache.tokens(chosen[static_cast<std::size_t>(sample)]).size()) - 1;
  };
  return static_cast<std::int64_t>(pack_rows(count, length, seq_len_of(config), config.trainer.seed, data.shuffle).size());
}

// Windows cut out of one long row of tokens.
std::int64_t count_of_windows(const config::RunConfig& config, std::int64_t tokens) {
  const std::int64_t samples = tokens < 1 ? 0 : (tokens - 1) / seq_len_of(config);
  return config.data.validation_path.empty() ? samples - held_back(samples, config.data.validation_fraction) : samples;
}

}  // namespace

std::int64_t held_back(std::int64_t samples, double validation_fraction) {
  return std::max<std::int64_t>(0, std::min<std::int64_t>(samples - 1, std::llround(static_cast<double>(samples) * validation_fraction)));
}

Split split(const Cache& cache, double validation_fraction) {
  // Samples of one record stand together, so records are counted by where the number changes.
  std::vector<std::uint32_t> record_of;
  std::uint32_t records = 0;
  for (std::int64_t sample = 0; sample < cache.samples(); ++sample) {
    if (sample > 0 && cache.entry(sample).record != cache.entry(sample - 1).record) ++records;
    record_of.push_back(records);
  }
  ++records;
  const std::int64_t held = held_back(records, validation_fraction);
  const Order order(records, split_seed, 0, /*shuffle=*/true);
  std::vector<bool> is_held_back(records, false);
  for (std::int64_t i = 0; i < held; ++i) is_held_back[static_cast<std::size_t>(order.sample_at(i))] = true;
  Split split;
  for (std::uint32_t sample = 0; sample < record_of.size(); ++sample)
    (is_held_back[record_of[sample]] ? split.validation : split.training).push_back(sample);
  return split;
}

std::vector<std::vector<std::uint32_t>> pack_rows(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& length,
                                                  std::int64_t capacity, std::int64_t seed, bool shuffle) {
  std::vector<std::vector<std::uint32_t>> rows;
  const Order order(count, seed, /*epoch=*/-1, shuffle);  // no epoch's own order
  const auto room = static_cast<std::uint32_t>(capacity);
  for (std::int64_t begin = 0; begin < count; begin += window) {
    const std::int64_t end = std::min(count, begin + window);
    std::vector<std::uint32_t> numbers, lengths;
    for (std::int64_t at = begin; at < end; ++at) {
      numbers.push_back(static_cast<std::uint32_t>(order.sample_at(at)));
      lengths.push_back(static_cast<std::uint32_t>(length(numbers.back())));
    }
    for (auto& row : shuffle ? first_fit_decreasing(lengths, room) : first_fit(lengths, room)) {
      for (std::uint32_t& index : row) index = numbers[index];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

void check_data_exists(const config::RunConfig& config) {
  const auto check = [&](const config::DataConfig& data) {
    const config::DataKind kind = kind_of(data);
    if (kind == config::DataKind::stories || kind == config::DataKind::random) return;
    if (data.path.empty()) throw base::data_error("data", "data.kind={} needs a file. Name it with --data.", config::name_of(kind));
    if (needs_preparing(data, config.model))
      find_files(data.path);
    else
      check_is_one_file(data.path);
  };
  check(config.data);
  if (!config.data.validation_path.empty()) check(validation_of(config.data));
}

std::int64_t count_training_samples(const config::RunConfig& config) {
  const config::DataConfig& data = config.data;
  const config::DataKind kind = kind_of(data);
  check_data_exists(config);
  if (kind == config::DataKind::stories)
    return count_of_windows(config, static_cast<std::int64_t>(make_stories(StoryMaker(), data.stories, config.trainer.seed).size()));
  if (kind == config::DataKind::random) return count_of_windows(config, data.random_tokens);
  if (needs_preparing(data, config.model)) {
    const auto cache = prepare(data, seq_len_of(config), language_of_records(data, config.model)).cache;
    if (kind == config::DataKind::records) return count_of_records(config, *cache);
    return count_of_windows(config, static_cast<std::int64_t>(cache->tokens().size()));
  }
  const auto bytes = std::filesystem::file_size(data.path);
  const std::int64_t width = kind == config::DataKind::text ? 1 : data.token_type == config::TokenType::u16 ? 2 : 4;
  return count_of_windows(config, static_cast<std::int64_t>(bytes) / width);
}

}  // namespace lockstep::corpus
