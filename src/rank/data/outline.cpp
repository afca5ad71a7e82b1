// Counts, lengths and starts of records as JSON, and a corpus that knows no more.
#include "rank/data/outline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace lockstep::data {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Corpus& corpus) {
  Json json = {{"samples", corpus.samples()},
               {"seq_len", corpus.seq_len()},
               {"fixed_length", corpus.fixed_length()},
               {"packed", corpus.packed()},
               {"fingerprint", corpus.fingerprint()}};
  for (std::int64_t sample = 0; sample < corpus.samples() && !corpus.fixed_length(); ++sample) {
    json["lengths"].push_back(corpus.length(sample));
    if (corpus.packed()) json["starts"].push_back(corpus.starts(sample));
  }
  return json;
}

class Outline final : public Corpus {
 public:
  explicit Outline(const Json& json)
      : samples_(json.at("samples")),
        seq_len_(json.at("seq_len")),
        fixed_length_(json.at("fixed_length")),
        packed_(json.at("packed")),
        fingerprint_(json.at("fingerprint")),
        lengths_(json.value("lengths", std::vector<std::int64_t>())),
        starts_(json.value("starts", std::vector<std::vector<std::int32_t>>())) {}

  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_len() const override { return seq_len_; }
  std::int64_t length(std::int64_t sample) const override {
    return fixed_length_ ? seq_len_ : lengths_.at(static_cast<std::size_t>(sample));
  }
  bool fixed_length() const override { return fixed_length_; }
  bool packed() const override { return packed_; }
  std::vector<std::int32_t> starts(std::int64_t sample) const override {
    return packed_ ? starts_.at(static_cast<std::size_t>(sample)) : Corpus::starts(sample);
  }
  void read(std::int64_t, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const override {
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), 0);
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  std::int64_t samples_, seq_len_;
  bool fixed_length_, packed_;
  std::string fingerprint_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::vector<std::int32_t>> starts_;
};

}  // namespace

std::string outline_of(const Dataset& dataset) {
  Json json = {{"description", dataset.description}, {"training", json_of(*dataset.training)}};
  if (dataset.validation) json["validation"] = json_of(*dataset.validation);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Dataset dataset_of_outline(const std::string& outline) {
  const Json json = base::parse_json(outline);
  Dataset dataset{.training = std::make_shared<Outline>(json.at("training")),
                  .validation = nullptr,
                  .language = nullptr,
                  .description = json.at("description")};
  if (json.contains("validation")) dataset.validation = std::make_shared<Outline>(json.at("validation"));
  return dataset;
}

}  // namespace lockstep::data
