// Contents for checkpoint tests: numbers that differ between tensors and versions, so that a mix-up shows.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/manifest.h"
#include "support/files/faulty_files.h"

namespace lockstep::checkpoint {

inline Contents contents_of(std::int64_t version) {
  Contents contents{.model = {}, .optimizer = {}, .state_json = fmt::format("{{\"version\": {}}}", version)};
  const std::vector<std::vector<std::int64_t>> shapes = {{64, 32}, {32}, {7, 3, 5}, {}, {0, 4}, {1000}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::int64_t elements = 1;
    for (const auto size : shapes[i]) elements *= size;
    const auto numbers = [&](std::size_t salt) {
      return at::arange(elements, at::kFloat).add(static_cast<double>(version * 1000 + static_cast<std::int64_t>(salt))).view(shapes[i]);
    };
    const std::string name = fmt::format("model.layers.{}.weight", i);
    const int unit = static_cast<int>(i / 2);
    contents.model.push_back({name, numbers(i), unit});
    contents.optimizer.push_back({"exp_avg." + name, numbers(100 + i), unit});
    contents.optimizer.push_back({"exp_avg_sq." + name, numbers(200 + i).to(i % 2 ? at::kBFloat16 : at::kFloat), unit});
  }
  return contents;
}

// Each of `count` writers holds a slice of every tensor, some of them nothing.
inline Contents slices_of(const Contents& whole, int index, int count) {
  Contents held{.model = {}, .optimizer = {}, .state_json = whole.state_json, .sharded = true};
  const auto cut = [&](const std::vector<NamedTensor>& from, std::vector<NamedTensor>& to) {
    for (const auto& [name, tensor, unit, shape, begin] : from) {
      const std::int64_t n = tensor.numel(), first = n * index / count, last = n * (index + 1) / count;
      to.push_back({name, tensor.flatten().narrow(0, first, last - first), unit, tensor.sizes().vec(), first});
    }
  };
  cut(whole.model, held.model);
  cut(whole.optimizer, held.optimizer);
  return held;
}

inline void expect_holds(const Reader& reader, std::int64_t version) {
  const Contents expected = contents_of(version);
  EXPECT_EQ(reader.state_json(), expected.state_json);
  const std::pair<std::string, const std::vector<NamedTensor>*> lists[] = {{"model", &expected.model}, {"optimizer", &expected.optimizer}};
  for (const auto& [kind, tensors] : lists) {
    EXPECT_EQ(reader.names(kind).size(), tensors->size());
    for (const NamedTensor& tensor : *tensors) {
      const auto read = at::empty_like(tensor.tensor);
      reader.read(kind, tensor.name, read);
      EXPECT_TRUE(at::equal(read, tensor.tensor)) << tensor.name;
    }
  }
}

// Small enough that what tests save has several files, and its tensors several slices.
inline constexpr Cut small_cut{.file_bytes = 4000, .slice_bytes = 1000};

// One process standing for all writers: savers in the order of their share.
inline std::vector<std::unique_ptr<Saver>> make_savers(base::FileSystem& files, const std::filesystem::path& folder, int writers,
                                                       Saver::Options options = {}) {
  std::vector<std::unique_ptr<Saver>> savers;
  for (int writer = 0; writer < writers; ++writer) {
    options.folder = folder;
    options.share = {writer, writers};
    savers.push_back(std::make_unique<Saver>(files, options));
  }
  return savers;
}

inline void save(const std::filesystem::path& folder, int writers, std::int64_t step, std::int64_t version, std::int64_t keep = 0,
                 const Cut& cut = small_cut) {
  support::FaultyFiles files;  // without faults: quick, as it waits for no disk
  auto savers = make_savers(files, folder, writers, {.keep = keep, .cut = cut});
  for (auto& saver : savers) saver->begin(step, contents_of(version));
  for (auto& saver : savers) saver->wait();
}

inline std::vector<std::string> listing(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// What does not tell who wrote it: all files but the manifest's time and number of writers.
inline std::map<std::string, std::string> tensor_files(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const std::string& name : listing(checkpoint)) {
    if (name != "manifest.json") files[name] = base::read_text(checkpoint / name);
  }
  Manifest manifest = read_manifest(checkpoint);
  manifest.writers = 0;
  manifest.time.clear();
  files["manifest.json"] = manifest_text(manifest);
  return files;
}

}  // namespace lockstep::checkpoint
