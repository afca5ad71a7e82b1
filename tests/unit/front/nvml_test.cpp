// What the driver's management library says, with stand-ins for a new driver, an old one and a broken one.
#include "front/launch/devices/nvml.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/temporary_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// The stand-in and what it says.
class Stub {
 public:
  Stub(const std::string& kind, const std::string& lines) {
    std::ofstream(folder_.path() / "gpus") << lines;
    ::setenv("STUB_NVML", (folder_.path() / "gpus").c_str(), 1);
    library_ = (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / kind / "libnvidia-ml.so.1").string();
  }
  ~Stub() { ::unsetenv("STUB_NVML"); }
  const char* library() const { return library_.c_str(); }

 private:
  support::TemporaryFolder folder_;
  std::string library_;
};

constexpr const char* two_gpus = R"(gpus 2
driver 580.65.06
cuda 13000
*.name NVIDIA H200
*.memory 150000000000
1.used 50000000000
0.bus 00000000:04:00.0
1.bus 00000000:05:00.0
*.major 9
*.minor 0
*.compute_mode 0
*.ecc 0
1.ecc 3
*.utilization 97
*.power 650500
*.power_limit 700000
*.temperature 61
1.temperature 88
*.sm_clock 1755
*.sm_clock_max 1980
*.memory_clock 3201
*.memory_clock_max 3201
*.throttle 0x1
1.throttle 0x64
*.generation 5
*.generation_max 5
*.width 16
1.width 8
*.width_max 16
*.sent 2048
*.received 1024
*.link.0 1
*.link.1 1
*.link.2 0
*.link_version 4
*.remote_kind 0
0.remote.0 00000000:05:00.0
0.remote.1 00000000:05:00.0
1.remote.0 00000000:04:00.0
1.remote.1 00000000:04:00.0
*.link_sent 10
*.link_received 20
1.processes 4711:1073741824 4712
*.peer 0
*.ancestor 10
)";

TEST(Nvml, EveryNumberWithItsUnit) {
  const Stub stub("stub_nvml", two_gpus);
  const Nvml nvml(stub.library());
  ASSERT_TRUE(nvml.started()) << nvml.problem();
  EXPECT_EQ(nvml.driver_version(), "580.65.06");
  EXPECT_EQ(nvml.cuda_version(), 13000);
  ASSERT_EQ(nvml.count(), 2);

  const GpuFacts facts = nvml.facts(1);
  EXPECT_EQ(facts.index, 1);
  EXPECT_EQ(facts.name, "NVIDIA H200");
  EXPECT_EQ(facts.uuid, "GPU-00000001-stub");
  EXPECT_EQ(facts.bus_id, "00000000:05:00.0");
  EXPECT_EQ(facts.memory_bytes, 150'000'000'000u);
  EXPECT_EQ(facts.capability_major, 9);
  EXPECT_EQ(facts.capability_minor, 0);
  EXPECT_EQ(facts.sm_clock_max_mhz, 1980);
  EXPECT_EQ(facts.memory_clock_max_mhz, 3201);
  EXPECT_EQ(facts.pcie_generation_max, 5);
  EXPECT_EQ(facts.pcie_width_max, 16);
  EXPECT_EQ(facts.use, GpuFacts::Use::shared);
  EXPECT_FALSE(facts.mig.has_value());
  EXPECT_EQ(facts.uncorrected_errors, 3u);

  const GpuReading reading = nvml.read(1);
  EXPECT_EQ(reading.memory_used_bytes, 50'000'000'000u);
  EXPECT_EQ(reading.memory_free_bytes, 100'000'000'000u);
  EXPECT_EQ(reading.utilization_percent, 97);
  EXPECT_DOUBLE_EQ(reading.power_w.value(), 650.5);
  EXPECT_DOUBLE_EQ(reading.power_limit_w.value(), 700);
  EXPECT_EQ(reading.temperature_c, 88);
  EXPECT_EQ(reading.sm_clock_mhz, 1755);
  EXPECT_EQ(reading.memory_clock_mhz, 3201);
  EXPECT_EQ(reading.throttled, (std::vector{Throttle::power_cap, Throttle::software_thermal, Throttle::hardware_thermal}));
  EXPECT_EQ(nvml.read(0).throttled, std::vector<Throttle>()) << "an idle GPU's clocks are low for a good reason";
  EXPECT_EQ(reading.pcie_width, 8);
  EXPECT_DOUBLE_EQ(reading.pcie_sent_bytes_per_s.value(), 2048 * 1024);
  EXPECT_DOUBLE_EQ(reading.pcie_received_bytes_per_s.value(), 1024 * 1024);
  EXPECT_EQ(reading.nvlink_sent_bytes, 10u * 1024);
  EXPECT_EQ(reading.nvlink_received_bytes, 20u * 1024);
  EXPECT_FALSE(nvml.read(1, {.pcie_traffic = false}).pcie_sent_bytes_per_s.has_value());
}

TEST(Nvml, ProcessesLinksAndPairs) {
  const Stub stub("stub_nvml", two_gpus);
  const Nvml nvml(stub.library());
  EXPECT_TRUE(nvml.processes(0).empty());
  const auto processes = nvml.processes(1);
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].pid, 4711);
  EXPECT_EQ(processes[0].memory_bytes, 1u << 30);
  EXPECT_FALSE(processes[1].memory_bytes.has_value());

  const auto links = nvml.links(0);
  ASSERT_EQ(links.size(), 3u);
  EXPECT_TRUE(links[0].active);
  EXPECT_FALSE(links[2].active);
  EXPECT_EQ(links[0].version, 4);
  EXPECT_EQ(links[0].remote, NvLink::Remote::gpu);
  const GpuPair pair = nvml.pair(0, 1);
  EXPECT_EQ(pair.reads, true);
  EXPECT_EQ(pair.writes, true);
  EXPECT_EQ(pair.nvlinks, 2);
  EXPECT_EQ(pair.path, "one switch");
}

TEST(Nvml, GpusOnOneSwitchAreLinked) {
  const Stub stub("stub_nvml",
                  "gpus 2\n*.name a\n*.memory 1000\n*.link.0 1\n*.link.1 1\n*.remote_kind 2\n*.remote.0 00000000:c0:00.0\n"
                  "*.remote.1 00000000:c1:00.0\n*.peer 4\n");
  const Nvml nvml(stub.library());
  EXPECT_EQ(nvml.pair(0, 1).nvlinks, 2);
  EXPECT_EQ(nvml.pair(0, 1).reads, false);
  EXPECT_EQ(nvml.pair(0, 1).why_not, "it is switched off in the driver's settings");
}

TEST(Nvml, MoreProcessesThanRoom) {
  std::string list = "1";
  for (int i = 2; i <= 200; ++i) list += " " + std::to_string(i);
  const Stub stub("stub_nvml", "gpus 1\n0.name a\n0.memory 1000\n0.processes " + list + "\n");
  EXPECT_EQ(Nvml(stub.library()).processes(0).size(), 200u);
}

TEST(Nvml, AnOldDriverKnowsLess) {
  const Stub stub("old_nvml", two_gpus);
  const Nvml nvml(stub.library());
  ASSERT_TRUE(nvml.started());
  EXPECT_EQ(nvml.driver_version(), "");
  EXPECT_EQ(nvml.facts(0).name, "NVIDIA H200");
  EXPECT_FALSE(nvml.facts(0).pcie_width_max.has_value());
  EXPECT_EQ(nvml.read(1).memory_used_bytes, 50'000'000'000u);
  EXPECT_FALSE(nvml.read(1).temperature_c.has_value());
  EXPECT_FALSE(nvml.read(1).throttled.has_value());
  EXPECT_FALSE(nvml.read(1).nvlink_sent_bytes.has_value());
  EXPECT_TRUE(nvml.processes(1).empty());
  EXPECT_TRUE(nvml.links(0).empty());
  EXPECT_FALSE(nvml.pair(0, 1).reads.has_value());
}

TEST(Nvml, ADriverThatDoesNotAnswer) {
  const Stub stub("stub_nvml", "init 18\n");
  const Nvml nvml(stub.library());
  EXPECT_TRUE(nvml.present());
  EXPECT_FALSE(nvml.started());
  EXPECT_EQ(nvml.problem(), "Driver/library version mismatch");
  EXPECT_EQ(nvml.count(), 0);
  EXPECT_FALSE(Nvml("libnvidia-ml-that-is-not-there.so.1").present());
}

}  // namespace
}  // namespace lockstep::launch
