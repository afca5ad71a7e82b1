// One target a reader of files that come from elsewhere.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/hash/crc32c.h"
#include "base/json.h"
#include "base/python_regex.h"
#include "base/file/safetensors.h"
#include "base/error.h"
#include "config/adapter/fit.h"
#include "config/adapter/folder.h"
#include "config/config.h"
#include "config/model_folder.h"
#include "fuzz/fuzz.h"
#include "rank/checkpoint/manifest.h"
#include "corpus/files/files.h"
#include "corpus/formats/format.h"
#include "support/temporary_folder.h"

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string_view> json_words = {
    "{",    "}",      "[",       "]",       ",",  ":",       "\"", "\\",   "null", "true", "false",           "{}",        "[]",
    "\"\"", "\"a\":", "\\u0000", "\\ud800", "[[", "{\"a\":", "]]", "\xff", "\xc3", "\n",   "\"weight_map\":", "\"shape\":"};

class Readers : public testing::Test {
 protected:
  fs::path write(const char* name, const std::string& text) {
    // A new file each time: some file systems wait for the disk when a file is cut off and written anew.
    std::filesystem::remove(folder_.path() / name);
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
    return folder_.path() / name;
  }
  support::TemporaryFolder folder_;
};

std::string with_length(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, 'x');
}

TEST_F(Readers, Json) {
  fuzz({"Json",
        {R"({"a": [1, 2.5, -3e2, {"b": null}], "c": "text \u00e9 \n", "d": {"e": [], "f": {}}, "g": true})", "[]", "\"text\"",
         std::string(499, '[') + std::string(499, ']')},
        json_words,
        [](const std::string& input) {
          try {
            const nlohmann::ordered_json tree = base::parse_json(input), copy = tree;
            if (base::parse_json(copy.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) != tree)
              throw base::Bug("what was read is not what was written");
          } catch (const base::JsonError& error) {
            throw base::data_error("fuzz", "{}", error.what());
          }
        }});
}

TEST_F(Readers, Regex) {
  fuzz({"Regex",
        {R"(.*\.layers\.(\d+)\.(self_attn|mlp)\.[a-z_]+_proj)", R"((?:a|b)*c{2,3}[^x-z]+?(?=d)(?!e)\w\b$)", R"(^model\.(?P<n>x)?.{,5})"},
        {"(", ")", "[", "]", "*", "+", "?", "{2,", "{1000}", "}", "|", "\\", "\\d", "(?:", "(?=", "(?!", "^", "$", "-", ".*", "(.*)*"},
        [](const std::string& input) {
          try {
            const base::PythonRegex regex(input);
            for (const char* name : {"model.layers.10.self_attn.q_proj", "lm_head", ""}) regex.matches_all_of(name);
          } catch (const base::RegexError& error) {
            throw base::usage_error("fuzz", "{}", error.what());
          }
        }});
}

TEST_F(Readers, Safetensors) {
  const std::string two = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                          R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
  fuzz({"Safetensors",
        {with_length(two, 32), with_length("{}", 0), with_length(R"({"x":{"dtype":"I8","shape":[],"data_offsets":[0,1]}})", 1)},
        json_words,
        [](const std::string& input) {
          const auto header = base::read_safetensors_header(std::as_bytes(std::span(input)), "fuzz.safetensors");
          std::uint64_t end = 0;
          for (const base::StoredTensor& tensor : header.tensors) end = std::max(end, tensor.end);
          if (header.data_begin + end != input.size()) throw base::Bug("tensors that do not cover the file");
        }});
}

TEST_F(Readers, Index) {
  fuzz({"Index",
        {R"({"metadata":{"total_size":32},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})"},
        json_words,
        [](const std::string& input) {
          for (const auto& [tensor, file] : base::read_safetensors_index(input, "model.safetensors.index.json"))
            if (file.find('/') != file.npos || file.find('\0') != file.npos) throw base::Bug("a file outside the folder");
        }});
}

TEST_F(Readers, ModelConfig) {
  const std::string llama =
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,)"
      R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":67,"max_position_embeddings":128,"rms_norm_eps":1e-6,"rope_theta":1e4,)"
      R"("hidden_act":"silu","tie_word_embeddings":false,"torch_dtype":"bfloat16","attention_bias":false,"rope_scaling":)"
      R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}})";
  const std::string qwen =
      R"({"model_type":"qwen3","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"head_dim":16,"vocab_size":67,"use_sliding_window":false,"layer_types":["full_attention"]})";
  fuzz({"ModelConfig", {llama, qwen}, json_words, [&](const std::string& input) {
          write("config.json", input);
          config::read_model_folder(folder_.path());
        }});
}

TEST_F(Readers, Adapter) {
  const std::string plain =
      R"({"peft_type":"LORA","base_model_name_or_path":"x/y","r":4,"lora_alpha":8,"lora_dropout":0.0,"target_modules":["q_proj"],"bias":"none",)"
      R"("rank_pattern":{"layers.0.*q_proj":2},"alpha_pattern":{"q_proj":3},"use_rslora":false,"use_dora":false,"layers_to_transform":[0],)"
      R"("modules_to_save":null,"exclude_modules":["v_proj"],"init_lora_weights":true})";
  const std::string regex = R"({"peft_type":"LORA","r":4,"target_modules":".*\\.layers\\.0\\..*(q|v)_proj","lora_alpha":8})";
  config::ModelConfig model;
  model.hidden_size = 8, model.num_layers = 1, model.num_heads = 2, model.vocab_size = 11, model.intermediate_size = 16;
  // Weights that fit the first seed.
  write("adapter_model.safetensors",
        with_length(
            R"({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]},)"
            R"("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight":{"dtype":"F32","shape":[8,2],"data_offsets":[64,128]}})",
            128));
  fuzz({"Adapter", {plain, regex}, json_words, [&](const std::string& input) {
          write("adapter_config.json", input);
          config::adapter_config_text(config::read_adapter_folder(folder_.path()), "base");
          config::check_adapter_fits(folder_.path(), model, config::AdapterUse::merge);
        }});
}

TEST_F(Readers, AdapterWeights) {
  write("adapter_config.json", R"({"peft_type":"LORA","r":2,"lora_alpha":8,"target_modules":["q_proj"]})");
  config::ModelConfig model;
  model.hidden_size = 8, model.num_layers = 1, model.num_heads = 2, model.vocab_size = 11, model.intermediate_size = 16;
  const std::string good = with_length(
      R"({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]},)"
      R"("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight":{"dtype":"F32","shape":[8,2],"data_offsets":[64,128]}})",
      128);
  fuzz({"AdapterWeights", {good}, json_words, [&](const std::string& input) {
          write("adapter_model.safetensors", input);
          config::check_adapter_fits(folder_.path(), model, config::AdapterUse::go_on);
        }});
}

TEST_F(Readers, Manifest) {
  checkpoint::Manifest manifest{.step = 4, .writers = 2, .time = "now", .files = {{"state.json", 10, 77}}, .tensors = {}};
  manifest.tensors.push_back({"model", "a.weight", "model-00001-of-00002.safetensors", "F32", {2, 3}, 0, 4, 4096, 5});
  manifest.tensors.push_back({"model", "a.weight", "model-00001-of-00002.safetensors", "F32", {2, 3}, 4, 2, 4112, 6});
  const checkpoint::Part part{.step = 4, .attempt = 1, .error = "", .pieces = {{"model-00001-of-00002.safetensors", 0, 4096, 7}}};
  const std::string first_format =
      R"({"format":"lockstep checkpoint","version":1,"step":4,"writers":1,"time":"now","files":[],"tensors":[{"kind":"model","name":"a","file":)"
      R"("f","dtype":"F32","shape":[2],"crc32c":"00000005"}]})";
  const auto read = [&](const std::string& text) {
    write("manifest.json", text);
    try {
      checkpoint::read_manifest(folder_.path());
    } catch (const base::UserError&) {
      checkpoint::parse_part(text, "part-0.json");
    }
  };
  fuzz({"Manifest",
        {checkpoint::manifest_text(manifest), checkpoint::part_text(part), first_format},
        json_words,
        [&](const std::string& input) {
          try {
            // With the checksum that fits, so that what stands behind it is read too.
            nlohmann::ordered_json json = base::parse_json(input);
            json.erase("crc32c");
            const std::string text = json.dump(1);
            json["crc32c"] = fmt::format("{:08x}", base::crc32c(std::as_bytes(std::span(text.data(), text.size()))));
            read(json.dump(1) + "\n");
          } catch (const base::JsonError&) {
            read(input);
          } catch (const nlohmann::ordered_json::exception&) {
            read(input);
          }
        }});
}

// A record's way in, as far as the text that a template or a tokenizer is given.
void read_records(const fs::path& path) {
  const corpus::Files files(path.string());
  corpus::Scanner scanner(files);
  const config::DataConfig data;
  std::string wrong;
  while (const auto raw = scanner.next()) {
    try {
      const corpus::Json record = files.parse(*raw);
      if (const auto format = corpus::detect_format(record, data)) corpus::read_content(record, *format, data, true);
    } catch (const corpus::Unreadable& error) {
      wrong = error.what();
    }
  }
  if (!wrong.empty()) throw corpus::Unreadable(wrong);
}

TEST_F(Readers, JsonLines) {
  fuzz({"JsonLines",
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}]}"
         "\n",
         R"({"conversations":[{"from":"human","value":"a"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},)"
         R"({"from":"observation","value":"1"},{"from":"gpt","value":"b"}],"tools":"[{\"name\":\"f\"}]","system":"s"})",
         "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"instruction\":\"a\",\"input\":\"\",\"output\":\"b\"}\n\n{\"text\":\"c\"}\n"},
        json_words,
        [&](const std::string& input) { read_records(write("data.jsonl", input)); }});
}

TEST_F(Readers, JsonArray) {
  fuzz({"JsonArray",
        {"[{\"text\":\"a\"},\n {\"prompt\":\"a\",\"completion\":\"b\"}]", "{\"train\":[{\"text\":\"a\"}]}"},
        json_words,
        [&](const std::string& input) { read_records(write("data.json", input)); }});
}

TEST_F(Readers, Csv) {
  fuzz({"Csv",
        {"prompt,completion\na,b\n\"c, \"\"d\"\"\ne\",f\n", "text\r\none\r\ntwo", "\xef\xbb\xbfinstruction,input,output\na,,b\n"},
        {",", "\"", "\"\"", "\n", "\r\n", "\r", ";", "\t", "\xff", "text", ",,,,", "\n\n"},
        [&](const std::string& input) { read_records(write("data.csv", input)); }});
}

TEST_F(Readers, Settings) {
  fuzz({"Settings",
        {"name: a\nmodel:\n  hidden_size: 64\n  num_heads: 4\ntrainer:\n  learning_rate: 3e-4\n  max_steps: 10\nlora:\n  enabled: true\n"
         "  target_modules: [q_proj, v_proj]\n  rank_pattern: [q_proj=8]\ndata:\n  path: \"x\"\n",
         "{\"trainer\": {\"batch_size\": 4, \"seed\": 1}, \"model\": {\"num_layers\": 2}}", "&a {x: *a, y: [*a, *a]}"},
        {": ", "\n  ",  "- ",   "[",     "]",
         "{",  "}",     "&a ",  "*a",    "<<: ",
         "!!", "|",     ">",    "\"",    "'",
         "#",  "---\n", "? ",   "%YAML", "re:(",
         "\t", "~",     "[[[[", "lora:", "target_modules: "},
        [&](const std::string& input) {
          config::Request request;
          request.file = write("config.yaml", input);
          config::load(request);
        }});
}

}  // namespace
}  // namespace lockstep::fuzz
