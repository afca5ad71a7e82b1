// A model folder's weights: types, shards and alignment as they come, memory that stays small, and hostile files that are only refused.
#include "rank/hub/hub_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "rank/model/model.h"
#include "support/temporary_folder.h"

namespace lockstep::hub {

using checkpoint::dtype_name;

namespace {

using Json = nlohmann::ordered_json;

config::ModelConfig tiny() {
  return {
      .hidden_size = 8, .num_layers = 2, .num_heads = 2, .kv_heads = 1, .intermediate_size = 12, .vocab_size = 11, .tie_embeddings = false};
}

std::map<std::string, at::Tensor> random_weights(const std::vector<model::UnitSpec>& specs) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& spec : specs) {
    for (const auto& leaf : spec.leaves) {
      for (const auto& piece : leaf.pieces) tensors[piece.name] = at::randn(piece.shape);
    }
  }
  return tensors;
}

// The bytes of a safetensors file, its header padded to a length that leaves the data unaligned where `odd`.
std::string file_of(const std::map<std::string, at::Tensor>& tensors, bool odd = false) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    header[name] = {{"dtype", dtype_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  while (text.size() % 8 != (odd ? 1 : 0)) text += ' ';
  std::string length(8, '\0');
  const std::uint64_t size = text.size();
  std::memcpy(length.data(), &size, 8);
  return length + text + data;
}

class Hub : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    std::filesystem::remove(folder_.path() / name);  // ext4 waits for the disk where a file is overwritten
    std::ofstream(folder_.path() / name, std::ios::binary) << bytes;
  }
  support::TemporaryFolder folder_;
};

std::vector<std::unique_ptr<model::Unit>> make_units(const std::vector<model::UnitSpec>& specs, const model::UnitStorage& storage) {
  std::vector<std::unique_ptr<model::Unit>> units;
  for (const auto& spec : specs) units.push_back(std::make_unique<model::Unit>(spec, storage));
  return units;
}

TEST_F(Hub, WeightsAndMastersFromEveryType) {
  const auto specs = model::decoder_units(tiny());
  const auto exact = random_weights(specs);
  for (const at::ScalarType stored : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType used : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const bool odd : {false, true}) {
        SCOPED_TRACE(fmt::format("{} read as {}{}", c10::toString(stored), c10::toString(used), odd ? ", not aligned" : ""));
        std::map<std::string, at::Tensor> tensors;
        for (const auto& [name, tensor] : exact) tensors[name] = tensor.to(stored);
        write("model.safetensors", file_of(tensors, odd));
        for (const bool trainable : {true, false}) {
          const auto units = make_units(specs, {.weight_dtype = used, .gradient_dtype = used, .trainable = trainable});
          EXPECT_TRUE(load_units(HubFolder(folder_.path()), units).notes.empty());
          for (const auto& unit : units) {
            for (const auto& [name, view] : unit->pieces_of(unit->weights())) EXPECT_TRUE(view.equal(tensors[name].to(used))) << name;
            if (!trainable) continue;
            for (const auto& [name, view] : unit->pieces_of(unit->master())) EXPECT_TRUE(view.equal(tensors[name].to(at::kFloat))) << name;
          }
        }
      }
    }
  }
}

TEST_F(Hub, TiedHeadsAndRotaryBuffersAreNoSurprise) {
  auto config = tiny();
  config.tie_embeddings = true;
  const auto specs = model::decoder_units(config);
  auto tensors = random_weights(specs);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["model.layers.1.self_attn.rotary_emb.inv_freq"] = at::randn({2});
  write("model.safetensors", file_of(tensors));
  EXPECT_TRUE(HubFolder(folder_.path()).check(specs).empty());
  tensors["model.layers.7.extra"] = at::randn({2});
  write("model.safetensors", file_of(tensors));
  const auto notes = HubFolder(folder_.path()).check(specs);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("model.layers.7.extra"), std::string::npos);
}

// Headers and indexes whose JSON is right and whose values are not: read or refused, nothing else.
TEST_F(Hub, HostileValuesAreReadOrRefused) {
  const auto specs = model::decoder_units(tiny());
  const auto tensors = random_weights(specs);
  const std::string good = file_of(tensors);
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  const Json header = Json::parse(good.substr(8, length));
  const std::string data = good.substr(8 + length);
  std::vector<std::string> names;
  for (const auto& [name, value] : header.items()) names.push_back(name);
  const std::vector<Json> hostile = {nullptr, true,      0,  1,  -1,     8,       1ull << 40, ~0ull,    INT64_MIN,       0.5,
                                     "F32",   "U8",      "", {}, {8, 8}, {-8, 8}, {0, 0},     {0, 256}, {1ull << 62, 4}, {8, 8, 0},
                                     "../x",  {{"k", 1}}};
  std::mt19937 random(2);
  const auto pick = [&](const auto& list) -> const auto& { return list[random() % list.size()]; };
  Json map = Json::object();
  for (const std::string& name : names) map[name] = "part.safetensors";
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Json changed = header, index = {{"metadata", Json::object()}, {"weight_map", map}};
    const bool sharded = round % 3 == 0;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      if (sharded && random() % 2 == 0)
        (random() % 8 == 0 ? index["weight_map"] : index["weight_map"][pick(names)]) = pick(hostile);
      else if (random() % 6 == 0)
        changed.erase(pick(names));
      else if (random() % 6 == 0)
        changed[pick(names)] = pick(hostile);
      else if (Json& entry = changed[pick(names)]; entry.is_object())
        entry[pick(std::vector<std::string>{"dtype", "shape", "data_offsets"})] = pick(hostile);
      if (!index["weight_map"].is_object()) break;
    }
    const std::string text = changed.dump();
    const std::uint64_t size = text.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &size, 8);
    std::filesystem::remove(folder_.path() / "model.safetensors");
    std::filesystem::remove(folder_.path() / "model.safetensors.index.json");
    write(sharded ? "part.safetensors" : "model.safetensors", bytes + text + data);
    if (sharded) write("model.safetensors.index.json", index.dump());
    try {
      const HubFolder folder(folder_.path());
      folder.check(specs);
      walk(folder, specs, [](const std::string&, const at::Tensor& view) { (void)view.sum(); });
    } catch (const base::UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// 1 GiB in 64 tensors: what is in memory at any time is the pages read ahead and the tensor at hand.
TEST_F(Hub, WalkingKeepsLittleInMemory) {
  constexpr std::int64_t rows = 4096, columns = 2048;
  model::UnitSpec spec{.name = "all", .leaves = {}};
  Json header = Json::object();
  std::uint64_t at = 0;
  for (int i = 0; i < 64; ++i) {
    const std::string name = fmt::format("t{}", i);
    spec.leaves.push_back({.name = name, .pieces = {{name, {rows, columns}}}});
    header[name] = {{"dtype", "BF16"}, {"shape", {rows, columns}}, {"data_offsets", {at, at + 2 * rows * columns}}};
    at += 2 * rows * columns;
  }
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  write("model.safetensors", bytes + text);
  std::filesystem::resize_file(folder_.path() / "model.safetensors", 8 + size + at);  // a hole: no disk is written

  const HubFolder folder(folder_.path());
  const std::int64_t before = resident_bytes();
  std::int64_t most = 0, seen = 0;
  walk(folder, std::span(&spec, 1), [&](const std::string&, const at::Tensor& view) {
    seen += view.numel();
    EXPECT_EQ(view.view({-1})[0].item<float>(), 0);
    most = std::max(most, resident_bytes() - before);
  });
  EXPECT_EQ(seen, 64 * rows * columns);
  EXPECT_LT(most, std::int64_t{400} << 20);
  EXPECT_LT(resident_bytes() - before, std::int64_t{64} << 20) << "pages are given back";
}

}  // namespace
}  // namespace lockstep::hub
