// Layout, checksums and the refusal to trust what is damaged.
#include "corpus/prepare/cache.h"

#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash/crc32c.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::corpus {
namespace {

static_assert(std::endian::native == std::endian::little, "cached tokens are little-endian");
static_assert(sizeof(SampleEntry) == 24);

constexpr std::array<char, 8> magic = {'L', 'S', 'T', 'O', 'K', 'E', 'N', '1'};
constexpr std::size_t flush_tokens = 1u << 20;

struct Trailer {
  std::array<char, 8> magic_word = magic;
  std::array<char, 32> key = {};
  std::uint64_t tokens = 0, entries = 0, counts_bytes = 0;
  std::uint32_t largest_token = 0;
  std::uint32_t tokens_checksum = 0, rest_checksum = 0;
  std::uint32_t own_checksum = 0;  // of all before it

  std::uint32_t checksum() const { return base::crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Trailer, own_checksum))); }
};
static_assert(sizeof(Trailer) == 80);

// Everything starts at a multiple of 8.
std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

std::string with_commas(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace

std::string Counts::to_json() const {
  return nlohmann::ordered_json{
      {"format", format}, {"records", records},       {"samples", samples},     {"tokens", tokens},     {"trained_tokens", trained_tokens},
      {"cut", cut},       {"cut_tokens", cut_tokens}, {"in_pieces", in_pieces}, {"too_long", too_long}, {"untrained", untrained},
      {"bad", bad},       {"examples", examples}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Counts Counts::from_json(const std::string& text) {
  const auto json = base::parse_json(text);
  Counts counts;
  counts.format = json.at("format");
  counts.records = json.at("records");
  counts.samples = json.at("samples");
  counts.tokens = json.at("tokens");
  counts.trained_tokens = json.at("trained_tokens");
  counts.cut = json.at("cut");
  counts.cut_tokens = json.at("cut_tokens");
  counts.in_pieces = json.at("in_pieces");
  counts.too_long = json.at("too_long");
  counts.untrained = json.at("untrained");
  counts.bad = json.at("bad");
  counts.examples = json.at("examples");
  return counts;
}

std::string Counts::summary() const {
  std::string text =
      fmt::format("{} record{}, {} tokens", with_commas(records), records == 1 ? "" : "s", base::human_count(static_cast<double>(tokens)));
  if (tokens > 0) text += fmt::format(", {:.0f}% trained", 100.0 * static_cast<double>(trained_tokens) / static_cast<double>(tokens));
  if (cut > 0) text += fmt::format(", {} cut", with_commas(cut));
  if (too_long > 0) text += fmt::format(", {} too long and skipped", with_commas(too_long));
  if (untrained > 0) text += fmt::format(", {} skipped with nothing to train", with_commas(untrained));
  if (bad > 0) text += fmt::format(", {} unreadable and skipped", with_commas(bad));
  return text;
}

std::shared_ptr<const Cache> Cache::open(const std::filesystem::path& path, const std::string& key, Verify verify) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  std::shared_ptr<Cache> cache(new Cache(base::MappedFile(path)));
  return cache->read(key, verify) ? cache : nullptr;
}

bool Cache::read(const std::string& key, Verify verify) {
  const std::span<const std::byte> all = file_.bytes();
  if (all.size() < sizeof(Trailer)) return false;
  Trailer trailer;
  std::memcpy(&trailer, all.data() + all.size() - sizeof trailer, sizeof trailer);
  if (trailer.magic_word != magic || trailer.own_checksum != trailer.checksum()) return false;
  key_.assign(trailer.key.begin(), trailer.key.end());
  if (key_ != key || trailer.entries == 0) return false;
  // The trailer is whole, so its sizes are what was written; the file must hold just that.
  const std::uint64_t token_bytes = padded(4 * trailer.tokens), bit_bytes = padded((trailer.tokens + 7) / 8);
  const std::uint64_t entry_bytes = trailer.entries * sizeof(SampleEntry), counts_bytes = padded(trailer.counts_bytes);
  if (token_bytes + bit_bytes + entry_bytes + counts_bytes + sizeof trailer != all.size()) return false;
  const auto rest = all.subspan(token_bytes, bit_bytes + entry_bytes + counts_bytes);
  if (base::crc32c(rest) != trailer.rest_checksum) return false;
  if (verify == Verify::content && base::crc32c(all.first(token_bytes)) != trailer.tokens_checksum) return false;

  tokens_ = {reinterpret_cast<const std::uint32_t*>(all.data()), trailer.tokens};
  bits_ = {reinterpret_cast<const std::uint8_t*>(rest.data()), bit_bytes};
  entries_ = {reinterpret_cast<const SampleEntry*>(rest.data() + bit_bytes), trailer.entries};
  counts_ = Counts::from_json({reinterpret_cast<const char*>(rest.data() + bit_bytes + entry_bytes), trailer.counts_bytes});
  largest_token_ = trailer.largest_token;
  return true;
}

std::span<const std::uint32_t> Cache::tokens(std::int64_t sample) const {
  base::check(sample >= 0 && sample < samples(), "a sample lies within its cache");
  const auto index = static_cast<std::size_t>(sample);
  return tokens_.subspan(entries_[index].first_token, entries_[index + 1].first_token - entries_[index].first_token);
}

CacheWriter::CacheWriter(base::FileSystem& files, std::filesystem::path path, std::string key)
    : files_(files), path_(std::move(path)), beside_(path_.string() + ".partial"), key_(std::move(key)), writer_(files.create(beside_)) {
  base::check(key_.size() == Trailer{}.key.size(), "a cache's key has 32 letters");
}

void CacheWriter::write(std::span<const std::byte> bytes, std::uint32_t& checksum) {
  writer_->write(bytes);
  checksum = base::crc32c(bytes, checksum);
  static constexpr std::array<std::byte, 8> zeros = {};
  const auto padding = std::span(zeros).first(padded(bytes.size()) - bytes.size());
  writer_->write(padding);
  checksum = base::crc32c(padding, checksum);
}

void CacheWriter::flush() {
  // Full buffers are even, so only the last one is padded.
  write(std::as_bytes(std::span(buffer_)), tokens_checksum_);
  buffer_.clear();
}

void CacheWriter::add(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> trained, const SampleEntry& origin) {
  base::check(tokens.size() == trained.size(), "every token is trained or not");
  entries_.push_back({tokens_, origin.file, origin.line, origin.record});
  bits_.resize((tokens_ + tokens.size() + 7) / 8);
  for (std::size_t i = 0; i < tokens.size(); ++i, ++tokens_) {
    const auto token = static_cast<std::uint32_t>(tokens[i]);
    largest_token_ = std::max(largest_token_, token);
    buffer_.push_back(token);
    if (trained[i] != 0) bits_[tokens_ / 8] |= static_cast<std::uint8_t>(1u << (tokens_ % 8));
    if (buffer_.size() == flush_tokens) flush();
  }
}

void CacheWriter::finish(const Counts& counts) {
  flush();
  entries_.push_back({tokens_, 0, 0, 0});
  const std::string words = counts.to_json();
  Trailer trailer;
  std::copy(key_.begin(), key_.end(), trailer.key.begin());
  trailer.tokens = tokens_;
  trailer.entries = entries_.size();
  trailer.counts_bytes = words.size();
  trailer.largest_token = largest_token_;
  trailer.tokens_checksum = tokens_checksum_;
  write(std::as_bytes(std::span(bits_)), trailer.rest_checksum);
  write(std::as_bytes(std::span(entries_)), trailer.rest_checksum);
  write(std::as_bytes(std::span(words.data(), words.size())), trailer.rest_checksum);
  trailer.own_checksum = trailer.checksum();
  writer_->write(std::as_bytes(std::span(&trailer, 1)));
  writer_->sync_and_close();
  files_.rename(beside_, path_);
}

}  // namespace lockstep::corpus
