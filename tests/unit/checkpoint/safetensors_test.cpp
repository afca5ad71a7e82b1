// Safetensors headers that nobody should trust, and those that everybody can read.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/hash/crc32c.h"
#include "rank/checkpoint/safetensors.h"
#include "support/temporary_folder.h"

namespace lockstep::checkpoint {
namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}
std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\1'));
}

class Safetensors : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& bytes) {
    const auto path = folder_.path() / "some.safetensors";
    std::filesystem::remove(path);  // ext4 waits for the disk where a file is overwritten
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string error_of(const std::string& bytes) {
    const auto path = write(bytes);
    try {
      const SafetensorsFile file(path);
      return "no error";
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::checkpoint);
      EXPECT_NE(std::string(error.what()).find("some.safetensors is damaged"), std::string::npos) << error.what();
      return error.what();
    }
  }
  support::TemporaryFolder folder_;
};

TEST_F(Safetensors, RoundTrip) {
  std::vector<TensorEntry> entries = {{"half", at::kHalf, {3}},
                                      {"bytes", at::kByte, {5}},
                                      {"double", at::kDouble, {2, 2}},
                                      {"none", at::kFloat, {0, 9}},
                                      {"one", at::kFloat, {}}};
  const std::uint64_t size = lay_out(entries);
  EXPECT_EQ(size, 6u + 5 + 32 + 0 + 4);
  const std::string header = safetensors_header(entries, {{"key", "value"}});
  EXPECT_EQ(header.size() % 4096, 0u);
  const SafetensorsFile file(write(header + std::string(size, '\7')));
  ASSERT_EQ(file.entries().size(), entries.size());
  EXPECT_EQ(file.metadata().at("key"), "value");
  EXPECT_EQ(file.find("nobody"), nullptr);
  for (const TensorEntry& entry : entries) {
    const TensorEntry* read = file.find(entry.name);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(read->dtype, entry.dtype);
    EXPECT_EQ(read->shape, entry.shape);
    EXPECT_EQ(file.bytes(*read).size(), entry.bytes());
    EXPECT_EQ(entry.begin % c10::elementSize(entry.dtype), 0u) << entry.name << " is not aligned";
  }
}

TEST_F(Safetensors, AnEmptyFileOfTensorsIsFine) { EXPECT_TRUE(SafetensorsFile(write(file_of("{}", 0))).entries().empty()); }

TEST_F(Safetensors, HostileHeaders) {
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const struct {
    std::string bytes;
    std::string says;
  } cases[] = {
      {"", "only 0 bytes"},
      {"1234567", "only 7 bytes"},
      {with_length(0, ""), "no JSON"},
      {with_length(1, ""), "claims 1 bytes, the file has 8"},
      {with_length(~std::uint64_t{0}, "{}"), "claims 18446744073709551615 bytes"},
      {with_length(~std::uint64_t{0} - 7, "{}"), "claims"},
      {with_length(100'000'001, "{}"), "claims"},
      {file_of("{", 0), "no JSON"},
      {file_of("[]", 0), "no JSON object"},
      {file_of("null", 0), "no JSON object"},
      {file_of("\xff\xfe{}", 0), "no JSON"},
      {file_of(std::string(100000, '['), 0), "no JSON"},
      {file_of("{" + good + "}", 7), "tensor a: its bytes 0 to 8 lie outside the 7 bytes"},
      {file_of("{" + good + "}", 9), "1 bytes at its end belong to no tensor"},
      {file_of("{" + good + "," + good + "}", 8), "tensor a: it is there twice"},
      {file_of(R"({"a":7})", 0), "tensor a: its entry is no object"},
      {file_of(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8), "tensor a: it has no dtype"},
      {file_of(R"({"a":{"dtype":5,"shape":[2],"data_offsets":[0,8]}})", 8), "its dtype is no text"},
      {file_of(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", 8), "its dtype 'F99' is unknown"},
      {file_of(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8), "it has no shape"},
      {file_of(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "its shape is no list"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "is no size: -2"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "is no size: 2.0"},
      {file_of(R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8), "is no size"},
      {file_of(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})", 8), "is no size"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0), "larger than any memory"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0), "larger than any memory"},
      {file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "its shape needs 12 bytes, its data_offsets give 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "it has no data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "no pair"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "lie outside"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8), "is no size"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,0]}})", 8), "is no size"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), "4 bytes before it belong to no tensor"},
      {file_of("{" + good + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), "tensor b: its bytes overlap those of a"},
      {file_of("{" + good + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "overlap"},
      {file_of("{" + good + R"(,"__metadata__":[]})", 8), "__metadata__ is no object"},
      {file_of("{" + good + R"(,"__metadata__":{"k":1}})", 8), "'k' is no text"},
  };
  for (const auto& [bytes, says] : cases) {
    const std::string error = error_of(bytes);
    EXPECT_NE(error.find(says), std::string::npos) << "'" << says << "' in: " << error;
  }
}

// Whatever bytes a header has, it is read or refused; nothing else happens.
TEST_F(Safetensors, DamagedHeadersAreReadOrRefused) {
  std::vector<TensorEntry> entries = {{"a", at::kFloat, {2, 2}}, {"b", at::kHalf, {3}}, {"c", at::kByte, {1}}};
  const std::uint64_t size = lay_out(entries);
  std::string header = safetensors_header(entries, {});
  const std::string good =
      with_length(header.find_last_of('}') - 7, header.substr(8, header.find_last_of('}') - 7)) + std::string(size, '\1');
  ASSERT_EQ(error_of(good), "no error");
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = good;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    const auto path = write(bytes);
    try {
      const SafetensorsFile file(path);
      for (const TensorEntry& entry : file.entries()) base::crc32c(file.bytes(entry));
    } catch (const base::UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace lockstep::checkpoint
