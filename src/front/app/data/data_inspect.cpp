// Counts lengths, duplicates and what packing would bring.
#include "front/app/data/data_inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "base/json.h"
#include "base/text.h"
#include "base/hash/content_hash.h"
#include "corpus/samples/packing.h"

namespace lockstep::app {
namespace {

constexpr std::size_t most_examples = 3;
constexpr std::size_t packing_window = 1u << 16;  // records that training lets share a row

std::string place_of(const corpus::Files& files, const corpus::SampleEntry& entry) {
  return files.place({.bytes = {}, .file = entry.file, .line = entry.line});
}

void measure_lengths(Inspection& inspection, std::vector<std::uint32_t> lengths) {
  std::sort(lengths.begin(), lengths.end());
  inspection.shortest = lengths.front();
  inspection.median = lengths[lengths.size() / 2];
  inspection.most = lengths[std::min(lengths.size() - 1, lengths.size() * 95 / 100)];
  inspection.longest = lengths.back();
  std::int64_t bound = 16;
  for (auto at = lengths.begin(); at != lengths.end(); bound *= 2) {
    const auto end = std::upper_bound(at, lengths.end(), static_cast<std::uint32_t>(std::min<std::int64_t>(bound, UINT32_MAX)));
    if (end != lengths.begin()) inspection.histogram.emplace_back(bound, end - at);
    at = end;
  }
}

void find_duplicates(Inspection& inspection, const corpus::Files& files, const corpus::Cache& cache) {
  std::unordered_map<std::string, std::int64_t> first;
  for (std::int64_t sample = 0; sample < cache.samples(); ++sample) {
    const auto tokens = cache.tokens(sample);
    const auto key = base::ContentHash().add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()}).hex();
    const auto [found, is_new] = first.emplace(key, sample);
    if (is_new) continue;
    ++inspection.duplicates;
    if (inspection.duplicate_examples.size() < most_examples) {
      inspection.duplicate_examples.emplace_back(place_of(files, cache.entry(sample)), place_of(files, cache.entry(found->second)));
    }
  }
}

void try_packing(Inspection& inspection, const std::vector<std::uint32_t>& lengths) {
  const auto capacity = static_cast<std::uint32_t>(inspection.seq_len);
  std::vector<std::uint32_t> positions;  // the last token is only a target
  for (const std::uint32_t length : lengths) positions.push_back(std::max(1u, length - 1));
  for (std::size_t at = 0; at < positions.size(); at += packing_window) {
    const auto some = std::span(positions).subspan(at, std::min(packing_window, positions.size() - at));
    inspection.packed_rows += static_cast<std::int64_t>(corpus::first_fit_decreasing(some, capacity).size());
  }
  const double held = std::accumulate(positions.begin(), positions.end(), 0.0);
  inspection.packed_fill = held / static_cast<double>(inspection.packed_rows * inspection.seq_len);
  inspection.plain_fill = held / static_cast<double>(static_cast<std::int64_t>(positions.size()) * inspection.seq_len);
}

double trained_share(const corpus::Counts& counts) {
  return counts.tokens > 0 ? static_cast<double>(counts.trained_tokens) / static_cast<double>(counts.tokens) : 0;
}

}  // namespace

Inspection inspect(const corpus::Files& files, const corpus::Cache& cache, std::int64_t seq_len) {
  Inspection inspection;
  inspection.files = files.names();
  inspection.seq_len = seq_len;
  inspection.counts = cache.counts();
  std::vector<std::uint32_t> lengths;
  for (std::int64_t sample = 0; sample < cache.samples(); ++sample)
    lengths.push_back(static_cast<std::uint32_t>(cache.tokens(sample).size()));
  measure_lengths(inspection, lengths);
  find_duplicates(inspection, files, cache);
  try_packing(inspection, lengths);
  return inspection;
}

std::string to_text(const Inspection& inspection) {
  const corpus::Counts& counts = inspection.counts;
  std::string text = fmt::format("{}: {} records, {} format\n", inspection.files, counts.records, counts.format);
  const auto line = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<12} {}\n", name, value); };
  line("tokens", fmt::format("{}, {:.1f}% trained", base::human_count(static_cast<double>(counts.tokens)), 100 * trained_share(counts)));
  line("samples", fmt::format("{} of up to {} positions{}", counts.samples, inspection.seq_len,
                              counts.in_pieces > 0 ? fmt::format("; {} texts are in pieces", counts.in_pieces) : ""));
  line("cut", counts.cut > 0 ? fmt::format("{} records, {} tokens lost", counts.cut, counts.cut_tokens) : "none");
  line("skipped", fmt::format("{} with nothing to train, {} too long, {} unreadable", counts.untrained, counts.too_long, counts.bad));
  for (const std::string& example : counts.examples) line("", example);
  line("duplicates", std::to_string(inspection.duplicates));
  for (const auto& [later, earlier] : inspection.duplicate_examples) line("", fmt::format("{} is the same as {}", later, earlier));
  line("packing", fmt::format("{} rows of {}, {:.1f}% full; one sample a row fills {:.1f}%", inspection.packed_rows, inspection.seq_len,
                              100 * inspection.packed_fill, 100 * inspection.plain_fill));
  line("lengths", fmt::format("{} to {} tokens, half up to {}, 95% up to {}", inspection.shortest, inspection.longest, inspection.median,
                              inspection.most));
  std::int64_t highest = 1;
  for (const auto& [bound, count] : inspection.histogram) highest = std::max(highest, count);
  for (const auto& [bound, count] : inspection.histogram) {
    constexpr std::int64_t width = 40;
    line("", fmt::format("up to {:>7}  {:<{}} {}", bound,
                         std::string(static_cast<std::size_t>((count * width + highest - 1) / highest), '#'), width, count));
  }
  return text;
}

nlohmann::ordered_json to_json(const Inspection& inspection) {
  auto json = base::parse_json(inspection.counts.to_json());
  json["files"] = inspection.files;
  json["seq_len"] = inspection.seq_len;
  json["trained_share"] = trained_share(inspection.counts);
  auto& lengths = json["lengths"] = {
      {"shortest", inspection.shortest}, {"median", inspection.median}, {"p95", inspection.most}, {"longest", inspection.longest}};
  for (const auto& [bound, count] : inspection.histogram) lengths["histogram"].push_back({{"up_to", bound}, {"samples", count}});
  json["duplicates"] = inspection.duplicates;
  json["duplicate_examples"] = inspection.duplicate_examples;
  json["packing"] = {{"rows", inspection.packed_rows}, {"fill", inspection.packed_fill}, {"fill_unpacked", inspection.plain_fill}};
  return json;
}

}  // namespace lockstep::app
