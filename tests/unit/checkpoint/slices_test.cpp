// The same files whoever saves, slices of any size read back, writers that hold slices of their own, and format 1.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>

#include <random>

#include "base/error.h"
#include "rank/checkpoint/cut.h"
#include "rank/checkpoint/manifest.h"
#include "support/source_folder/source_folder.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/contents.h"
#include "unit/checkpoint/error_of.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int rank_counts[] = {1, 2, 3, 5};

void save_slices(const fs::path& folder, int writers, std::int64_t step, const Contents& whole) {
  support::FaultyFiles files;
  auto savers = make_savers(files, folder, writers, {.cut = small_cut});
  for (int writer = 0; writer < writers; ++writer) savers[static_cast<std::size_t>(writer)]->begin(step, slices_of(whole, writer, writers));
  for (auto& saver : savers) saver->wait();
}

TEST(CheckpointSlices, FilesDoNotTellWhoWroteThem) {
  for (const Cut& cut : {Cut{}, small_cut}) {
    const support::TemporaryFolder first;
    save(first.path(), 1, 7, 3, 0, cut);
    const auto expected = tensor_files(step_folder(first.path(), 7));
    for (const int writers : {2, 3, 5, 20}) {
      const support::TemporaryFolder folder;
      save(folder.path(), writers, 7, 3, 0, cut);
      EXPECT_TRUE(tensor_files(step_folder(folder.path(), 7)) == expected) << writers;
    }
  }
}

// As ranks do that own slices of each tensor: the same bytes as of ranks that hold everything.
TEST(CheckpointSlices, WritersThatHoldSlicesWriteTheSameFiles) {
  const support::TemporaryFolder first;
  save(first.path(), 1, 7, 3);
  for (const int writers : {1, 2, 3, 5, 40}) {  // 40: more writers than numbers in some tensors
    const support::TemporaryFolder folder;
    save_slices(folder.path(), writers, 7, contents_of(3));
    EXPECT_TRUE(tensor_files(step_folder(folder.path(), 7)) == tensor_files(step_folder(first.path(), 7))) << writers;
    expect_holds(Reader(step_folder(folder.path(), 7)), 3);
  }
}

// A number that nobody writes, or two write, is no checkpoint.
TEST(CheckpointSlices, SlicesThatDoNotFitTogetherAreNotSaved) {
  for (const int shift : {-1, 1}) {
    const support::TemporaryFolder folder;
    support::FaultyFiles files;
    auto savers = make_savers(files, folder.path(), 2, {.cut = small_cut});
    Contents second = slices_of(contents_of(1), 1, 2);
    NamedTensor& tensor = second.model[0];
    const std::int64_t n = tensor.tensor.numel();
    tensor.begin += shift;
    tensor.tensor = at::zeros({n - shift});
    savers[1]->begin(1, second);
    savers[1]->wait();
    savers[0]->begin(1, slices_of(contents_of(1), 0, 2));
    const std::string error = error_of([&] { savers[0]->wait(); });
    EXPECT_NE(error.find("does not fit together at byte"), std::string::npos) << error;
    EXPECT_TRUE(listing(folder.path()).empty());
  }
}

// Saved by any number of ranks, read by any number: each reads its slices.
TEST(CheckpointSlices, AnyNumberReadsWhatAnyNumberSaved) {
  const Contents expected = contents_of(9);
  for (const int saved_by : rank_counts) {
    const support::TemporaryFolder folder;
    save(folder.path(), saved_by, 1, 9);
    for (const int read_by : rank_counts) {
      for (int rank = 0; rank < read_by; ++rank) {
        const Reader reader(step_folder(folder.path(), 1));
        const Contents mine = slices_of(expected, rank, read_by);
        for (const auto& [kind, tensors] : {std::pair{"model", &mine.model}, std::pair{"optimizer", &mine.optimizer}}) {
          for (const NamedTensor& tensor : *tensors) {
            const at::Tensor target = at::empty_like(tensor.tensor);
            reader.read_slice(kind, tensor.name, tensor.begin, target);
            EXPECT_TRUE(at::equal(target, tensor.tensor)) << tensor.name << " of rank " << rank << " of " << read_by;
          }
        }
      }
    }
  }
}

TEST(CheckpointSlices, OnlyWhatIsReadIsCompared) {
  const support::TemporaryFolder folder;
  save(folder.path(), 3, 1, 1);
  const fs::path path = step_folder(folder.path(), 1) / "model-00001-of-00002.safetensors";
  std::string content = base::read_text(path);
  content[4096 + 1500] ^= 1;  // number 375 of the first tensor: its second slice
  fs::remove(path);
  base::write_text_atomically(base::real_files(), path, content);
  const Reader reader(step_folder(folder.path(), 1));
  const std::string name = "model.layers.0.weight";
  const at::Tensor whole = contents_of(1).model[0].tensor.flatten();
  for (const auto& [begin, count, good] : {std::tuple{0, 250, true}, std::tuple{500, 1548, true}, std::tuple{249, 2, false},
                                           std::tuple{300, 1, false}, std::tuple{0, 2048, false}}) {
    const at::Tensor target = at::empty({count});
    const std::string error = error_of([&] { reader.read_slice("model", name, begin, target); });
    EXPECT_EQ(error == "no error", good) << begin << ": " << error;
    EXPECT_EQ(error.find("is damaged: its checksum differs") == std::string::npos, good) << error;
    EXPECT_TRUE(!good || at::equal(target, whole.narrow(0, begin, count)));
  }
  for (const auto& [begin, count] : {std::pair{-1, 2}, std::pair{2047, 2}, std::pair{2049, 0}}) {
    const std::string error = error_of([&] { reader.read_slice("model", name, begin, at::empty({count})); });
    EXPECT_NE(error.find("has 2048 numbers, this model asks for"), std::string::npos) << error;
  }
}

// Slices of 250 numbers, 1000 bytes: what is read is those that the numbers lie in, and the second time the numbers alone.
TEST(CheckpointSlices, NoMoreIsReadThanTheSlicesThatNumbersLieIn) {
  const support::TemporaryFolder folder;
  save(folder.path(), 1, 1, 1);
  const Reader reader(step_folder(folder.path(), 1));
  std::uint64_t before = reader.bytes_read();
  EXPECT_EQ(before, 0u);
  for (const auto& [begin, count, bytes] : {std::tuple{10, 3, 1000u}, std::tuple{240, 20, 40u + 1000u}, std::tuple{2000, 48, 192u},
                                            std::tuple{700, 600, 4000u}, std::tuple{0, 2048, 8192u}}) {
    reader.read_slice("model", "model.layers.0.weight", begin, at::empty({count}));
    EXPECT_EQ(reader.bytes_read() - before, bytes) << begin;
    before = reader.bytes_read();
  }
  const Contents contents = contents_of(1);
  std::uint64_t held = 0;
  for (const auto* list : {&contents.model, &contents.optimizer})
    for (const NamedTensor& tensor : *list) held += tensor.tensor.nbytes();
  EXPECT_EQ(reader.bytes_held(), held);
}

// Each file by one of those who look through a checkpoint together.
TEST(CheckpointSlices, ReadersLookThroughACheckpointBetweenThem) {
  const support::TemporaryFolder folder;
  save(folder.path(), 1, 1, 1);
  const fs::path checkpoint = step_folder(folder.path(), 1);
  std::uint64_t all = 0, read = 0;
  for (const FileEntry& file : read_manifest(checkpoint).files) all += file.bytes;
  for (int index = 0; index < 3; ++index) {
    const Reader reader(checkpoint);
    reader.verify({index, 3});
    read += reader.bytes_read();
  }
  EXPECT_EQ(read, all);
  const fs::path path = checkpoint / read_manifest(checkpoint).files[1].name;
  std::string content = base::read_text(path);
  content.back() ^= 1;
  fs::remove(path);
  base::write_text_atomically(base::real_files(), path, content);
  for (int index = 0; index < 3; ++index) {
    const std::string error = error_of([&] { Reader(checkpoint).verify({index, 3}); });
    EXPECT_EQ(error.find(path.filename().string()) != std::string::npos, index == 1) << error;
  }
}

// A manifest whose own checksum fits, of slices that do not.
TEST(CheckpointSlices, SlicesThatDoNotCoverTheirTensorAreRefused) {
  const support::TemporaryFolder folder;
  save(folder.path(), 1, 1, 1);
  const fs::path checkpoint = step_folder(folder.path(), 1);
  const Manifest good = read_manifest(checkpoint);
  ASSERT_GT(good.tensors[1].begin, 0);
  const std::pair<const char*, std::function<void(std::vector<SliceEntry>&)>> cases[] = {
      {"one is missing", [](auto& list) { list.erase(list.begin() + 1); }},
      {"the first is missing", [](auto& list) { list.erase(list.begin()); }},
      {"one comes twice", [](auto& list) { list.insert(list.begin(), list[0]); }},
      {"two are swapped", [](auto& list) { std::swap(list[0], list[1]); }},
      {"one is empty", [](auto& list) { list.insert(list.begin() + 1, list[1])->count = 0; }},
      {"it counts backwards", [](auto& list) { list[1].count = -1; }},
      {"it counts too far", [](auto& list) { list[1].count = std::numeric_limits<std::int64_t>::max(); }},
      {"it begins before", [](auto& list) { list[1].begin = -1; }},
      {"it lies elsewhere", [](auto& list) { list[1].offset += 4; }},
      {"in no file", [](auto& list) { list[1].file = "model-00009-of-00002.safetensors"; }},
      {"in another file", [](auto& list) { list[1].file = "model-00002-of-00002.safetensors"; }},
      {"of another shape", [](auto& list) { list[1].shape[0] += 1; }},
      {"of another type", [](auto& list) { list[1].dtype = "I32"; }},
  };
  for (const auto& [what, change] : cases) {
    Manifest damaged = good;
    change(damaged.tensors);
    fs::remove(checkpoint / "manifest.json");
    base::write_text_atomically(base::real_files(), checkpoint / "manifest.json", manifest_text(damaged));
    EXPECT_NE(error_of([&] { Reader reader(checkpoint); }).find("does not hold tensor"), std::string::npos) << what;
  }
}

// Written by the last program of format 1, two ranks, contents_of(5): it stays readable, bit for bit, whole and by slices.
TEST(CheckpointSlices, Format1IsRead) {
  const fs::path checkpoint = fs::path(test::source_folder()) / "tests" / "unit" / "checkpoint" / "format-1" / "step-000005";
  EXPECT_EQ(read_manifest(checkpoint).version, 1);
  const Reader reader(checkpoint);
  reader.verify();
  const Contents expected = contents_of(5);
  expect_holds(reader, 5);
  for (const auto& [kind, tensors] : {std::pair{"model", &expected.model}, std::pair{"optimizer", &expected.optimizer}}) {
    EXPECT_EQ(reader.names(kind).size(), tensors->size());
    for (const NamedTensor& tensor : *tensors) {
      const at::Tensor flat = tensor.tensor.flatten(), target = at::empty({flat.numel() / 2}, flat.options());
      reader.read_slice(kind, tensor.name, flat.numel() / 3, target);
      EXPECT_TRUE(at::equal(target, flat.narrow(0, flat.numel() / 3, target.numel()))) << tensor.name;
    }
  }
  const support::TemporaryFolder copy;
  fs::copy(checkpoint, copy.path() / "step-000005", fs::copy_options::recursive);
  const fs::path file = copy.path() / "step-000005" / "optimizer-00002-of-00002.safetensors";
  std::string content = base::read_text(file);
  content.back() ^= 1;
  fs::remove(file);
  base::write_text_atomically(base::real_files(), file, content);
  EXPECT_NE(error_of([&] { Reader(copy.path() / "step-000005").verify(); }).find("optimizer-00002-of-00002.safetensors is damaged"),
            std::string::npos);
}

// Every byte of every file is one writer's, shares are equal but for a page, and borders lie at pages.
TEST(CheckpointSlices, EqualSharesCoverEveryByteOnce) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> bytes(1 + random() % 6);
    for (std::uint64_t& size : bytes) size = 4096 + random() % (round % 2 ? 9000 : 3u << 20);
    if (round == 0) bytes = {(1ull << 62) + 4095, (1ull << 62) - 8191};  // no product of it fits in 64 bits
    std::uint64_t total = 0;
    for (const std::uint64_t size : bytes) total += size;
    const int writers = 1 + static_cast<int>(random() % 9);
    std::vector<std::uint64_t> covered(bytes.size());
    std::size_t file = 0;
    for (int writer = 0; writer < writers; ++writer) {
      std::uint64_t share = 0;
      for (const FileRange& range : equal_share(bytes, {writer, writers})) {
        ASSERT_GE(range.file, file);  // one stretch, in order
        file = range.file;
        ASSERT_EQ(range.begin, covered[file]);
        ASSERT_TRUE(range.end % 4096 == 0 || range.end == bytes[file]);
        covered[file] = range.end;
        share += range.bytes();
      }
      const std::uint64_t even = total / static_cast<std::uint64_t>(writers);
      EXPECT_LT(share > even ? share - even : even - share, 4096 + 2u) << writer << " of " << writers;
    }
    EXPECT_EQ(covered, bytes);
  }
}

TEST(CheckpointSlices, FilesAreCutBetweenUnits) {
  Contents contents;
  for (int i = 0; i < 8; ++i) contents.model.push_back({fmt::format("w{}", i), at::zeros({10}), i / 2});  // 40 bytes each, 80 a unit
  const auto files_of = [&](std::uint64_t file_bytes) {
    std::vector<std::size_t> tensors;
    for (const CutFile& file : cut_files(1, contents, {.file_bytes = file_bytes})) tensors.push_back(file.entries.size());
    return tensors;
  };
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(files_of(1), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(files_of(80), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(files_of(81), (Counts{4, 4}));
  EXPECT_EQ(files_of(200), (Counts{6, 2}));
  EXPECT_EQ(files_of(1000), Counts{8});
}

}  // namespace
}  // namespace lockstep::checkpoint
