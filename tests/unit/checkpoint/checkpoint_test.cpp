// Saving and reading back: any number of writers, keep-N, and every kind of damage found.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "rank/checkpoint/manifest.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/contents.h"
#include "unit/checkpoint/error_of.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::string read_file(const fs::path& path) { return base::read_text(path); }
void write_file(const fs::path& path, const std::string& bytes) {
  fs::remove(path);  // ext4 waits for the disk where a file is overwritten
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Checkpoint, AnyNumberOfWritersReadBackTheSame) {
  for (const int writers : {1, 2, 3, 20}) {
    const support::TemporaryFolder folder;
    save(folder.path() / "made" / "here", writers, 5, 5);
    std::vector<std::string> skipped;
    const auto newest = newest_whole(folder.path() / "made" / "here", &skipped);
    ASSERT_TRUE(newest) << writers;
    EXPECT_EQ(newest->filename(), "step-000005");
    EXPECT_TRUE(skipped.empty());
    const Reader reader(*newest);
    reader.verify();
    expect_holds(reader, 5);
    EXPECT_EQ(read_manifest(*newest).writers, writers);
  }
}

TEST(Checkpoint, AWholeFolderHoldsNothingElse) {
  const support::TemporaryFolder folder;
  save(folder.path(), 2, 12, 1, 0, {});
  save(folder.path(), 2, 13, 1);
  EXPECT_EQ(listing(folder.path()), (Names{"step-000012", "step-000013"}));
  EXPECT_EQ(listing(folder.path() / "step-000012"),
            (Names{"manifest.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json",
                   "optimizer-00001-of-00001.safetensors", "state.json"}));
  EXPECT_EQ(listing(folder.path() / "step-000013"),
            (Names{"manifest.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                   "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors", "state.json"}));
}

TEST(Checkpoint, WithoutBackgroundBeginReturnsWhenItIsWhole) {
  const support::TemporaryFolder folder;
  Saver saver(base::real_files(), {.folder = folder.path(), .asynchronous = false});
  saver.begin(1, contents_of(1));
  EXPECT_FALSE(saver.busy());
  EXPECT_EQ(listing(folder.path()), Names{"step-000001"});
  saver.wait();
}

// The copy is taken in begin(): what training does to the weights afterwards is not in the checkpoint.
TEST(Checkpoint, HoldsWhatWasThereWhenItBegan) {
  const support::TemporaryFolder folder;
  Saver saver(base::real_files(), {.folder = folder.path()});
  for (const std::int64_t step : {1, 2, 3}) {
    const Contents contents = contents_of(step);
    saver.begin(step, contents);
    for (const NamedTensor& tensor : contents.model) tensor.tensor.zero_();
    for (const NamedTensor& tensor : contents.optimizer) tensor.tensor.zero_();
  }
  saver.wait();
  for (const std::int64_t step : {1, 2, 3}) expect_holds(Reader(step_folder(folder.path(), step)), step);
}

TEST(Checkpoint, ViewsThatAreNotContiguousAreStoredAsTheyRead) {
  const support::TemporaryFolder folder;
  Contents contents;
  const auto whole = at::arange(24, at::kFloat).view({4, 6});
  contents.model = {{"transposed", whole.t()}, {"columns", whole.narrow(1, 1, 2)}};
  contents.state_json = "{}";
  Saver saver(base::real_files(), {.folder = folder.path()});
  saver.begin(1, contents);
  saver.wait();
  const Reader reader(step_folder(folder.path(), 1));
  for (const NamedTensor& tensor : contents.model) {
    const auto read = at::empty(tensor.tensor.sizes(), at::kFloat);
    reader.read("model", tensor.name, read);
    EXPECT_TRUE(at::equal(read, tensor.tensor)) << tensor.name;
  }
}

TEST(Checkpoint, ReadsIntoOtherTypesAndRefusesOtherShapes) {
  const support::TemporaryFolder folder;
  save(folder.path(), 2, 1, 1);
  const Reader reader(step_folder(folder.path(), 1));
  const auto half = at::empty({64, 32}, at::kBFloat16);
  reader.read("model", "model.layers.0.weight", half);
  EXPECT_TRUE(at::equal(half, contents_of(1).model[0].tensor.to(at::kBFloat16)));
  EXPECT_EQ(reader.shape("model", "model.layers.2.weight"), (std::vector<std::int64_t>{7, 3, 5}));
  const auto wrong = at::empty({32, 64});
  const std::string error = error_of([&] { reader.read("model", "model.layers.0.weight", wrong); });
  EXPECT_NE(error.find("model.layers.0.weight has shape [64, 32], this model needs [32, 64]"), std::string::npos) << error;
  EXPECT_NE(error_of([&] { reader.read("model", "nobody", wrong); }).find("has no model tensor nobody"), std::string::npos);
}

TEST(Checkpoint, KeepsTheNewest) {
  const struct {
    std::int64_t keep;
    std::vector<std::int64_t> saved;
    Names left;
  } cases[] = {
      {0, {1, 2, 3, 4}, {"step-000001", "step-000002", "step-000003", "step-000004"}},
      {1, {1, 2, 3}, {"step-000003"}},
      {2, {10, 20, 30}, {"step-000020", "step-000030"}},
      {3, {1, 2}, {"step-000001", "step-000002"}},
      {2, {80, 90, 100, 60}, {"step-000060", "step-000100"}},  // went on from an older one: the one just saved stays
      {2, {5, 5, 5}, {"step-000005"}},
      {2, {999999, 1000000, 1000001}, {"step-1000000", "step-1000001"}},
  };
  for (const auto& [keep, saved, left] : cases) {
    const support::TemporaryFolder folder;
    support::FaultyFiles files;
    auto savers = make_savers(files, folder.path(), 2, {.keep = keep});
    for (std::int64_t version = 0; const std::int64_t step : saved) {
      for (auto& saver : savers) saver->begin(step, contents_of(version));
      for (auto& saver : savers) saver->wait();
      expect_holds(Reader(step_folder(folder.path(), step)), version++);
    }
    EXPECT_EQ(listing(folder.path()), left);
  }
}

TEST(Checkpoint, NewestWholeIsByNumberNotByName) {
  const support::TemporaryFolder folder;
  for (const std::int64_t step : {999999, 1000000, 2}) save(folder.path(), 1, step, step);
  EXPECT_EQ(newest_whole(folder.path(), nullptr)->filename(), "step-1000000");
  EXPECT_FALSE(newest_whole(folder.path() / "nowhere", nullptr));
}

TEST(Checkpoint, LeftoversAreCleanedByWriterZero) {
  const support::TemporaryFolder folder;
  save(folder.path(), 1, 1, 1);
  for (const char* name : {"step-000002.partial", "step-000003.deleting", "step-000001.replaced", "step-x.partial", "notes"}) {
    fs::create_directories(folder.path() / name);
    write_file(folder.path() / name / "part-1.json", "stale");
  }
  { Saver second(base::real_files(), {.folder = folder.path(), .share = {1, 2}}); }
  EXPECT_EQ(listing(folder.path()).size(), 6u);
  { Saver first(base::real_files(), {.folder = folder.path(), .share = {0, 2}}); }
  EXPECT_EQ(listing(folder.path()), (Names{"notes", "step-000001", "step-x.partial"}));
  // A crash between taking the old one away and putting the new one in its place.
  fs::rename(folder.path() / "step-000001", folder.path() / "step-000001.replaced");
  expect_holds(Reader(newest_whole(folder.path(), nullptr).value()), 1);
  { Saver first(base::real_files(), {.folder = folder.path(), .share = {0, 2}}); }
  EXPECT_EQ(listing(folder.path()), (Names{"notes", "step-000001", "step-x.partial"}));
}

// Every damaged byte is found, the damaged file is named, and the checkpoint before is used.
TEST(Checkpoint, ADamagedByteInAnyFileIsFound) {
  const support::TemporaryFolder folder;
  save(folder.path(), 2, 1, 1);
  save(folder.path(), 2, 2, 2);
  const fs::path newest = folder.path() / "step-000002";
  for (const std::string& name : listing(newest)) {
    const std::string content = read_file(newest / name);
    const std::size_t stride = std::max<std::size_t>(1, content.size() / 150);
    for (std::size_t at = 0; at < content.size(); at += stride) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
      write_file(newest / name, damaged);
      const std::string error = error_of([&] { Reader(newest).verify(); });
      ASSERT_NE(error, "no error") << name << " byte " << at;
      ASSERT_NE(error.find(name), std::string::npos) << error;
    }
    for (const std::string& cut :
         {content.substr(0, content.size() - 1), content.substr(0, content.size() / 2), content + "x", std::string()}) {
      write_file(newest / name, cut);
      ASSERT_NE(error_of([&] { Reader(newest).verify(); }), "no error") << name << " cut to " << cut.size();
    }
    fs::remove(newest / name);
    std::vector<std::string> skipped;
    EXPECT_EQ(newest_whole(folder.path(), &skipped)->filename(), "step-000001");
    ASSERT_EQ(skipped.size(), 1u);
    EXPECT_NE(skipped[0].find(name), std::string::npos) << skipped[0];
    write_file(newest / name, content);
  }
  EXPECT_EQ(newest_whole(folder.path(), nullptr)->filename(), "step-000002");
}

TEST(Checkpoint, ADamagedTensorIsNotHandedOut) {
  const support::TemporaryFolder folder;
  save(folder.path(), 1, 1, 1);
  const fs::path path = folder.path() / "step-000001" / "model-00001-of-00002.safetensors";
  std::string content = read_file(path);
  content.back() ^= 4;
  write_file(path, content);
  const Reader reader(folder.path() / "step-000001");
  int refused = 0;
  const Contents contents = contents_of(1);
  for (const NamedTensor& tensor : contents.model) {
    refused += error_of([&] { reader.read("model", tensor.name, at::empty_like(tensor.tensor)); }) != "no error";
  }
  EXPECT_EQ(refused, 1);
}

TEST(Checkpoint, ANewerFormatIsRefusedByItsNumber) {
  const support::TemporaryFolder folder;
  save(folder.path(), 1, 1, 1);
  const fs::path path = folder.path() / "step-000001" / "manifest.json";
  std::string text = read_file(path);
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 9");
  write_file(path, text);
  EXPECT_NE(error_of([&] { Reader reader(folder.path() / "step-000001"); }).find("has format 9"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::checkpoint
