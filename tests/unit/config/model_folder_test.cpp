// config.json of a model folder: what each family's says, what ours says when written, and that no file can do more than be refused.
#include "config/model_folder.h"

#include <nlohmann/json.hpp>
#include <random>

#include "unit/config/support.h"

namespace lockstep::config {
namespace {

using OrderedJson = nlohmann::ordered_json;
namespace fs = std::filesystem;

OrderedJson plain(const std::string& architecture, const std::string& type) {
  return {{"architectures", {architecture}}, {"model_type", type},       {"hidden_size", 64},        {"intermediate_size", 128},
          {"num_hidden_layers", 3},          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"vocab_size", 100},
          {"max_position_embeddings", 4096}, {"rms_norm_eps", 1e-05},    {"rope_theta", 500000.0},   {"torch_dtype", "bfloat16"},
          {"tie_word_embeddings", true},     {"initializer_range", 0.01}};
}

class ModelFolder : public testing::Test {
 protected:
  FolderModel read(const std::string& text) {
    const fs::path path = fs::path(folder_.write("marker", "")).parent_path();
    fs::remove(path / "config.json");  // ext4 waits for the disk where a file is overwritten
    folder_.write("config.json", text);
    return read_model_folder(path);
  }
  FolderModel read(const OrderedJson& json) { return read(json.dump()); }
  TemporaryFolder folder_;
};

TEST_F(ModelFolder, ShapeOfEachFamily) {
  const FolderModel llama = read(plain("LlamaForCausalLM", "llama"));
  const ModelConfig& m = llama.model;
  EXPECT_EQ(llama.dtype, "bfloat16");
  EXPECT_EQ(m.hidden_size, 64);
  EXPECT_EQ(m.num_layers, 3);
  EXPECT_EQ(m.num_heads, 4);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.head_dim, 16);
  EXPECT_EQ(m.intermediate_size, 128);
  EXPECT_EQ(m.vocab_size, 100);
  EXPECT_EQ(m.max_seq_len, 4096);
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_EQ(m.rope_theta, 500000);
  EXPECT_EQ(m.initializer_range, 0.01);
  EXPECT_TRUE(m.tie_embeddings);
  EXPECT_FALSE(m.qkv_bias || m.qk_norm);
  EXPECT_EQ(m.sliding_window, 0);

  EXPECT_TRUE(read(plain("Qwen2ForCausalLM", "qwen2")).model.qkv_bias);
  const ModelConfig qwen3 = read(plain("Qwen3ForCausalLM", "qwen3")).model;
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128) << "Qwen3's own default, not hidden_size / heads";
  EXPECT_EQ(read(plain("MistralForCausalLM", "mistral")).model.sliding_window, 4096) << "Mistral's own default";
}

TEST_F(ModelFolder, WhatTransformersTakesForMissingKeys) {
  OrderedJson json = plain("LlamaForCausalLM", "llama");
  for (const char* key : {"architectures", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta", "torch_dtype",
                          "tie_word_embeddings", "initializer_range"})
    json.erase(key);
  const FolderModel found = read(json);
  EXPECT_EQ(found.dtype, "");
  EXPECT_EQ(found.model.kv_heads, 4);
  EXPECT_EQ(found.model.max_seq_len, 2048);
  EXPECT_EQ(found.model.norm_eps, 1e-6);
  EXPECT_EQ(found.model.rope_theta, 10000);
  EXPECT_FALSE(found.model.tie_embeddings);
}

TEST_F(ModelFolder, Windows) {
  OrderedJson json = plain("Qwen2ForCausalLM", "qwen2");
  json["sliding_window"] = 1024;
  EXPECT_EQ(read(json).model.sliding_window, 0);
  json["use_sliding_window"] = false;
  EXPECT_EQ(read(json).model.sliding_window, 0);
  json["use_sliding_window"] = true;
  EXPECT_EQ(read(json).model.sliding_window, 1024);
  OrderedJson mistral = plain("MistralForCausalLM", "mistral");
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(read(mistral).model.sliding_window, 0);
}

TEST_F(ModelFolder, BothSpellingsOfRopeScaling) {
  const RopeScalingConfig wanted{
      .type = RopeScaling::llama3, .factor = 32, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_seq_len = 8192};
  const OrderedJson numbers = {
      {"factor", 32.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  OrderedJson old_way = plain("LlamaForCausalLM", "llama"), new_way = old_way;
  old_way["rope_scaling"] = numbers;
  old_way["rope_scaling"]["rope_type"] = "llama3";
  new_way.erase("rope_theta");
  new_way["rope_parameters"] = old_way["rope_scaling"];
  new_way["rope_parameters"]["rope_theta"] = 500000.0;
  for (const OrderedJson& json : {old_way, new_way}) {
    EXPECT_EQ(read(json).model.rope_scaling, wanted);
    EXPECT_EQ(read(json).model.rope_theta, 500000);
  }
  OrderedJson linear = plain("LlamaForCausalLM", "llama");
  linear["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(read(linear).model.rope_scaling.type, RopeScaling::linear);
  EXPECT_EQ(read(linear).model.rope_scaling.factor, 2);
}

TEST_F(ModelFolder, WhatIsWrittenReadsBack) {
  ModelConfig base{.hidden_size = 48, .num_layers = 2, .num_heads = 4, .kv_heads = 2, .vocab_size = 77, .max_seq_len = 512};
  base = with_defaults(base);
  std::vector<ModelConfig> models(7, base);
  models[1].qkv_bias = true;
  models[2].qk_norm = true;
  models[2].head_dim = 32;
  models[3].sliding_window = 64;
  models[4].rope_scaling = {
      .type = RopeScaling::llama3, .factor = 8, .low_freq_factor = 2, .high_freq_factor = 5, .original_max_seq_len = 99};
  models[5].rope_scaling.type = RopeScaling::linear;
  models[5].rope_scaling.factor = 3;
  models[6].qkv_bias = true;
  models[6].sliding_window = 32;
  models[6].tie_embeddings = false;
  for (ModelConfig model : models) {
    model.family = Family::automatic;
    model = with_defaults(model);
    const FolderModel back = read(hugging_face_config(model, DType::bf16, {}));
    ModelConfig found = back.model;
    found.name = model.name;
    EXPECT_EQ(found, model) << hugging_face_config(model, DType::bf16, {});
    EXPECT_EQ(dtype_from_hugging_face(back.dtype), DType::bf16);
  }
  models[0].qkv_bias = models[0].qk_norm = true;
  EXPECT_NE(mistake([&] { (void)hugging_face_config(models[0], DType::f32, {}); }).find("no Hugging Face family"), std::string::npos);
}

TEST_F(ModelFolder, ASourceKeepsWhatWeKnowNothingOf) {
  OrderedJson json = plain("LlamaForCausalLM", "llama");
  json["eos_token_id"] = {128001, 128008};
  json["_name_or_path"] = "somewhere";
  const FolderModel found = read(json);
  const fs::path folder = fs::path(folder_.write("marker", "")).parent_path();
  OrderedJson expected = json;
  expected.erase("_name_or_path");
  expected["torch_dtype"] = "float16";
  EXPECT_EQ(OrderedJson::parse(hugging_face_config(found.model, DType::f16, folder)), expected);
}

// Whatever a config.json holds, it is read within the ranges of our settings or refused; nothing else happens.
TEST_F(ModelFolder, HostileFilesAreReadOrRefused) {
  const std::vector<std::string> seeds = {plain("LlamaForCausalLM", "llama").dump(), plain("Qwen3ForCausalLM", "qwen3").dump(),
                                          plain("MistralForCausalLM", "mistral").dump()};
  const std::vector<OrderedJson> hostile = {nullptr,
                                            true,
                                            false,
                                            0,
                                            -1,
                                            1,
                                            2,
                                            3,
                                            1 << 30,
                                            1e308,
                                            -0.5,
                                            "",
                                            "x",
                                            "silu",
                                            OrderedJson::array(),
                                            OrderedJson::object(),
                                            ~0ull,
                                            INT64_MIN,
                                            {1, {2}},
                                            "linear"};
  const std::vector<std::string> more = {
      "rope_scaling", "rope_parameters", "sliding_window",      "use_sliding_window",    "head_dim", "attention_bias",
      "mlp_bias",     "hidden_act",      "quantization_config", "partial_rotary_factor", "dtype"};
  std::mt19937 random(1);
  const auto pick = [&](const auto& list) -> const auto& { return list[random() % list.size()]; };
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = pick(seeds);
    if (round % 3 == 0) {
      for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes)
        text[random() % text.size()] = static_cast<char>(random());
      if (random() % 4 == 0) text.resize(random() % text.size());
    } else {
      OrderedJson json = OrderedJson::parse(text);
      for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
        std::vector<std::string> keys = more;
        for (const auto& [key, value] : json.items()) keys.push_back(key);
        const std::string key = pick(keys);
        if (random() % 5 == 0)
          json.erase(key);
        else if (key.starts_with("rope_"))
          json[key] = {{"rope_type", random() % 2 == 0 ? "llama3" : "linear"},
                       {"factor", pick(hostile)},
                       {"low_freq_factor", pick(hostile)},
                       {"high_freq_factor", pick(hostile)},
                       {"rope_theta", pick(hostile)}};
        else
          json[key] = pick(hostile);
      }
      text = json.dump();
    }
    try {
      const ModelConfig m = read(text).model;
      EXPECT_TRUE(m.hidden_size > 0 && m.num_layers > 0 && m.num_heads > 0 && m.kv_heads > 0 && m.head_dim > 0 && m.vocab_size > 0 &&
                  m.intermediate_size > 0 && m.num_heads % m.kv_heads == 0 && m.norm_eps > 0 && m.rope_theta > 0)
          << text;
    } catch (const base::UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 2900);
}

}  // namespace
}  // namespace lockstep::config
