// Writing model folders: shards, dtypes, what goes along, and a disk that fails at every possible moment.
#include "rank/hub/hub_writer.h"

#include <gtest/gtest.h>

#include <fstream>

#include <ATen/ops/full.h>

#include "base/error.h"
#include "config/config.h"
#include "rank/hub/hub_folder.h"
#include "rank/model/model.h"
#include "support/files/faulty_files.h"
#include "support/temporary_folder.h"

namespace lockstep::hub {

using checkpoint::SafetensorsFile;
using checkpoint::TensorEntry;

namespace {

namespace fs = std::filesystem;

HubExport tiny_export() {
  config::ModelConfig model{.hidden_size = 8, .num_layers = 2, .num_heads = 2, .intermediate_size = 12, .vocab_size = 11};
  return {.model = config::with_defaults(model), .dtype = config::DType::f32};
}

// Every number of every tensor is `value`.
TensorSource all(const HubExport& what, double value) {
  return {.fetch = [specs = model::decoder_units(what.model), value](const std::string& name) {
    for (const auto& spec : specs) {
      for (const auto& leaf : spec.leaves) {
        for (const auto& piece : leaf.pieces) {
          if (piece.name == name) return at::full(piece.shape, value);
        }
      }
    }
    throw base::Bug("a tensor that no model has");
  }};
}

// The value that a whole folder holds; 0 and a failed test where it is not whole.
double value_in(const fs::path& path, const HubExport& what) {
  try {
    const HubFolder folder(path);
    EXPECT_TRUE(folder.check(model::decoder_units(what.model)).empty());
    EXPECT_TRUE(fs::exists(path / "config.json"));
    EXPECT_TRUE(fs::exists(path / "generation_config.json"));
    double value = 0;
    for (const auto& [name, tensor] : folder.tensors()) {
      const double one = folder.view(name).view({-1})[0].item<double>();
      EXPECT_TRUE(value == 0 || value == one) << "two models in one folder";
      value = one;
    }
    return value;
  } catch (const base::UserError& error) {
    ADD_FAILURE() << error.what();
    return 0;
  }
}

TEST(HubWriter, ShardsEndWhereTheNextTensorIsTooMuch) {
  const support::TemporaryFolder folder;
  HubExport what = tiny_export();
  what.max_shard_bytes = 1000;
  what.dtype = config::DType::bf16;
  write_hub_folder(base::real_files(), folder.path() / "out", what, all(what, 3));
  EXPECT_EQ(value_in(folder.path() / "out", what), 3);
  std::size_t shards = 0;
  for (const auto& entry : fs::directory_iterator(folder.path() / "out")) {
    if (entry.path().extension() != ".safetensors") continue;
    ++shards;
    const SafetensorsFile file(entry.path());
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_LE(file.entries().back().end, 1000u);
    for (const TensorEntry& tensor : file.entries()) EXPECT_EQ(tensor.dtype, at::kBFloat16);
  }
  EXPECT_GT(shards, 1u);
  EXPECT_TRUE(fs::exists(folder.path() / "out" / fmt::format("model-{:05}-of-{:05}.safetensors", shards, shards)));
}

TEST(HubWriter, NumbersThatF16DoesNotHave) {
  const support::TemporaryFolder folder;
  HubExport what = tiny_export();
  what.dtype = config::DType::f16;
  try {
    write_hub_folder(base::real_files(), folder.path() / "out", what, all(what, 70000));
    FAIL() << "infinities were written";
  } catch (const base::UserError& error) {
    EXPECT_NE(std::string(error.what()).find("model.embed_tokens.weight holds numbers beyond 65504"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "half a folder stayed";
}

TEST(HubWriter, TokenizerFilesGoAlong) {
  const support::TemporaryFolder folder;
  fs::create_directories(folder.path() / "source");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "notes.txt"})
    std::ofstream(folder.path() / "source" / name) << name;
  HubExport what = tiny_export();
  what.tokenizer = folder.path() / "source";
  write_hub_folder(base::real_files(), folder.path() / "out", what, all(what, 1));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    EXPECT_EQ(base::read_text(folder.path() / "out" / name), name);
  EXPECT_FALSE(fs::exists(folder.path() / "out" / "notes.txt"));
}

// The operation fails once: the folder before it or the new one is there, whole, and the next try works.
TEST(HubWriter, TheNthOperationFails) {
  const HubExport what = tiny_export();
  for (std::int64_t n = 0;; ++n) {
    const support::TemporaryFolder folder;
    const fs::path out = folder.path() / "out";
    write_hub_folder(base::real_files(), out, what, all(what, 1));
    support::FaultyFiles files;
    files.fail_at = n;
    bool failed = false;
    try {
      write_hub_folder(files, out, what, all(what, 2));
    } catch (const base::UserError& error) {
      failed = true;
      EXPECT_NE(std::string(error.what()).find("Input/output error"), std::string::npos) << error.what();
    }
    if (files.operations() <= n) break;  // there was no n-th operation: all of them have failed once
    EXPECT_TRUE(failed) << n;
    const double value = value_in(out, what);
    EXPECT_TRUE(value == 1 || value == 2) << n;
    write_hub_folder(base::real_files(), out, what, all(what, 3));
    EXPECT_EQ(value_in(out, what), 3);
    EXPECT_FALSE(fs::exists(folder.path() / "out.partial") || fs::exists(folder.path() / "out.replaced")) << n;
    ASSERT_LT(n, 1000);
  }
}

}  // namespace
}  // namespace lockstep::hub
