// The file of matmul choices: shared by processes, and never trusted.
#include "rank/kernels/matmul_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace lockstep::kernels {
namespace {

class MatmulCacheFile : public ::testing::Test {
 protected:
  MatmulCacheFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep_matmul_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~MatmulCacheFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  const MatmulCache::Choice one_{1, 2, 3, 4, 5, 6, 7, 0xffffffffffffffffull}, two_{8, 7, 6, 5, 4, 3, 2, 1};
};

TEST_F(MatmulCacheFile, RemembersAcrossProcesses) {
  const auto path = folder_ / "new" / "file.txt";
  MatmulCache first(path), second(path);  // both start before either has found anything
  first.remember("nt= 1 1 64", one_);
  second.remember("nn= 1 1 64", two_);
  const MatmulCache later(path);
  EXPECT_EQ(later.find("nt= 1 1 64"), one_);
  EXPECT_EQ(later.find("nn= 1 1 64"), two_);
  EXPECT_EQ(later.find("nn= 1 1 65"), std::nullopt);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}), 1) << "no leftovers beside the file";
}

TEST_F(MatmulCacheFile, DropsForeignLines) {
  const auto path = folder_ / "file.txt";
  std::ofstream(path)
      << "\n\tno key\nno tab 1 2 3\nshort\t1 2 3\nlong\t1 2 3 4 5 6 7 8 9\nwords\ta b c d e f g h\nbinary\t\x01\xff\ngood\t1 2 3 4 5 6 7 "
         "ffffffffffffffff \n";
  MatmulCache cache(path);
  for (const auto* key : {"", "no key", "no tab 1 2 3", "short", "long", "words", "binary"})
    EXPECT_EQ(cache.find(key), std::nullopt) << key;
  EXPECT_EQ(cache.find("good"), one_);
  cache.remember("more", two_);
  EXPECT_EQ(MatmulCache(path).find("good"), one_);
}

TEST_F(MatmulCacheFile, AFileThatCannotBeWrittenCostsNothing) {
  std::ofstream(folder_ / "plain") << "a file, not a folder";
  MatmulCache cache(folder_ / "plain" / "file.txt");
  cache.remember("key", one_);
  EXPECT_EQ(cache.find("key"), one_);
  MatmulCache nowhere({});
  nowhere.remember("key", two_);
  EXPECT_EQ(nowhere.find("key"), two_);
}

TEST(MatmulCachePath, NamesDeviceAndLibrary) {
  const char* before = std::getenv("LOCKSTEP_CACHE");
  const std::string kept = before ? before : "";
  ::setenv("LOCKSTEP_CACHE", "/somewhere", 1);
  EXPECT_EQ(matmul_cache_path("NVIDIA H200", 130100), "/somewhere/matmul-4-NVIDIA-H200-130100.txt");
  EXPECT_EQ(matmul_cache_path("../a/b", 1).parent_path(), "/somewhere");
  before ? ::setenv("LOCKSTEP_CACHE", kept.c_str(), 1) : ::unsetenv("LOCKSTEP_CACHE");
}

}  // namespace
}  // namespace lockstep::kernels
