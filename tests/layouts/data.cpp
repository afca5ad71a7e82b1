// Tokens from a fixed seed; records that fill rows exactly, with a tokenizer of words.
#include "layouts/data.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace lockstep::layouts {
namespace {

using Json = nlohmann::ordered_json;

constexpr int vocabulary = 96, length = 16, samples = 24, held_back = 9;

void write_tokens(const std::string& path, int count, unsigned seed) {
  std::mt19937 draw(seed);
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < count * length + 1; ++i) {
    const std::uint32_t token = draw() % vocabulary;
    file.write(reinterpret_cast<const char*>(&token), sizeof(token));
  }
}

std::string word(unsigned number) { return "w" + std::to_string(number); }

// Every word is a token.
void write_tokenizer(const std::string& path) {
  Json words = Json::object();
  for (unsigned i = 0; i < vocabulary; ++i) words[word(i)] = i;
  const Json tokenizer{{"version", "1.0"},
                       {"added_tokens", Json::array()},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                       {"post_processor", nullptr},
                       {"decoder", nullptr},
                       {"model", {{"type", "WordLevel"}, {"vocab", words}, {"unk_token", word(0)}}}};
  std::ofstream(path) << tokenizer.dump();
}

// A long record and a short one fill a row of `length`.
void write_records(const std::string& path, int rows, unsigned seed) {
  std::mt19937 draw(seed);
  std::ofstream file(path);
  for (int row = 0; row < rows; ++row) {
    for (const int words : {10, 6}) {
      std::string text;
      for (int i = 0; i < words; ++i) text += (i == 0 ? "" : " ") + word(draw() % vocabulary);
      file << Json{{"text", text}}.dump() << "\n";
    }
  }
}

}  // namespace

void write_data(const std::string& folder) {
  write_tokens(folder + "/tokens.bin", samples, 1);
  write_tokens(folder + "/one.bin", 1, 2);
  write_tokens(folder + "/validation.bin", held_back, 3);
  write_records(folder + "/records.jsonl", samples, 4);
  write_records(folder + "/validation.jsonl", held_back, 5);
  write_tokenizer(folder + "/tokenizer.json");
}

DataFiles data_files(const std::string& folder, const std::string& kind) {
  if (kind == "packed records")
    return {samples,
            {"data.path=" + folder + "/records.jsonl", "data.validation_path=" + folder + "/validation.jsonl",
             "data.tokenizer=" + folder + "/tokenizer.json", "data.cache_dir=" + folder + "/cache"}};
  const bool one = kind == "ranks without a token";
  return {one ? 1 : samples,
          {"data.path=" + folder + (one ? "/one.bin" : "/tokens.bin"), "data.validation_path=" + folder + "/validation.bin"}};
}

}  // namespace lockstep::layouts
