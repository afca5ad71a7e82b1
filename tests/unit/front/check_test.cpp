// What facts of a machine mean, with made-up machines.
#include "front/check/check.h"

#include <gtest/gtest.h>

#include <set>

#include "front/catalog/catalog.h"
#include "front/check/host.h"
#include "front/check/links.h"
#include "front/check/variables.h"

namespace lockstep::check {
namespace {

constexpr std::uint64_t mib = 1 << 20, gib = 1 << 30;

void expect(const Finding& finding, Verdict verdict, std::string_view code, const std::string& what) {
  EXPECT_EQ(name_of(finding.verdict), name_of(verdict)) << what << ": " << finding.words;
  EXPECT_EQ(finding.code, code) << what << ": " << finding.words;
  EXPECT_EQ(finding.fix.empty(), verdict == Verdict::ok) << what << ": what is wrong has a fix";
}

TEST(Check, EveryCheckHasANameAndAQuestion) {
  std::set<std::string_view> names;
  for (const Check& one : checks()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_FALSE(one.group.empty() || one.asks.empty() || one.asks.ends_with('?')) << one.name;
  }
}

TEST(Check, Disks) {
  const Disk good_one{"runs", "/x", 100 * gib, 200 * gib};
  expect(judge(good_one, gib, 10 * gib), Verdict::ok, "", "room");
  expect(judge(good_one, gib, 101 * gib), Verdict::warning, "LS-405", "less than is safe");
  expect(judge(good_one, 101 * gib, 102 * gib), Verdict::failed, "LS-405", "less than is needed");
  expect(judge(Disk{"runs", "/x", 0, 0, "Read-only file system"}, 1, 1), Verdict::failed, "LS-407", "read-only");
  expect(judge(Disk{"runs", "/x", 0, 0, "No space left on device"}, 1, 1), Verdict::failed, "LS-405", "full");
}

TEST(Check, SharedMemory) {
  const auto shm = [](std::uint64_t bytes) { return Disk{"shared memory", "/dev/shm", bytes, bytes}; };
  expect(judge_shared_memory(shm(gib), 8, true), Verdict::ok, "", "plenty");
  expect(judge_shared_memory(shm(64 * mib), 8, true), Verdict::warning, "LS-404", "Docker's, for 8 GPUs");
  expect(judge_shared_memory(shm(64 * mib), 8, false), Verdict::ok, "", "Docker's, for CPU ranks");
  expect(judge_shared_memory(shm(64 * mib), 1, true), Verdict::ok, "", "Docker's, for one GPU");
  expect(judge_shared_memory(shm(mib), 2, false), Verdict::failed, "LS-404", "no room for pages");
  expect(judge_shared_memory(Disk{"shared memory", "/dev/shm", 0, 0, "No such file or directory"}, 1, false), Verdict::failed, "LS-404",
         "none");
}

TEST(Check, Limits) {
  const auto worst = [](const Limits& limits, int ranks) { return judge(limits, ranks, 1).front(); };
  expect(worst({}, 8), Verdict::ok, "", "no limits");
  expect(worst({.files = 1024, .processes = 10000}, 8), Verdict::ok, "", "usual ones");
  expect(worst({.files = 400}, 8), Verdict::warning, "LS-406", "few files");
  expect(worst({.files = 100}, 8), Verdict::failed, "LS-406", "too few files");
  expect(worst({.files = {}, .processes = 100}, 8), Verdict::warning, "LS-411", "few processes");
}

TEST(Check, MemoryAndContainers) {
  expect(judge(base::HostMemory{64 * gib, 60 * gib}, 8), Verdict::ok, "", "plenty");
  expect(judge(base::HostMemory{64 * gib, 4 * gib}, 8), Verdict::warning, "LS-402", "others use it");
  expect(judge(base::HostMemory{64 * gib, gib}, 8), Verdict::failed, "LS-402", "next to nothing");
  expect(judge(base::HostMemory{64 * gib, 60 * gib, 8 * gib, 4 * gib}, 8), Verdict::warning, "LS-408", "a container's limit");
  expect(judge(base::HostMemory{64 * gib, 60 * gib, 2 * gib, 2 * gib}, 8), Verdict::failed, "LS-408", "a container's limit is reached");
  EXPECT_EQ((base::HostMemory{64 * gib, 60 * gib, 8 * gib, 9 * gib}.usable()), 0u);
}

TEST(Check, Clocks) {
  expect(judge(Clock{1'800'000'000, true}, 2), Verdict::ok, "", "synchronized");
  expect(judge(Clock{1'800'000'000, false}, 1), Verdict::ok, "", "alone");
  expect(judge(Clock{1'800'000'000, false}, 2), Verdict::warning, "LS-410", "between machines");
  expect(judge(Clock{3600, true}, 1), Verdict::failed, "LS-410", "1970");
}

TEST(Check, SpeedBesideTheLink) {
  expect(judge_speed(360e9, 450e9, true, "", "18 NVLinks"), Verdict::ok, "", "NVLink");
  expect(judge_speed(40e9, 450e9, true, "", "18 NVLinks"), Verdict::warning, "LS-315", "NVLink, and numbers go through the host");
  expect(judge_speed(12e9, 31.5e9, false, "", "PCIe 4.0 x16"), Verdict::ok, "", "PCIe");
  expect(judge_speed(3e9, 31.5e9, false, "", "PCIe 4.0 x16"), Verdict::warning, "LS-315", "slow PCIe");
  EXPECT_NEAR(pcie_bytes_per_second(4, 16), 31.5e9, 0.1e9);
  EXPECT_EQ(nvlink_bytes_per_second(4) * 18, 450e9);
  EXPECT_EQ(pcie_bytes_per_second(0, 16), 0);
}

TEST(Check, Variables) {
  const std::vector<std::string> interfaces = {"eth0", "lo"};
  struct Case {
    launch::Environment environment;
    Verdict verdict;
    std::string code;
  };
  for (const Case& c : std::vector<Case>{
           {{}, Verdict::ok, ""},
           {{{"NCCL_DEBUG", "INFO"}}, Verdict::ok, ""},
           {{{"NCCL_P2P_DISABLE", "1"}}, Verdict::warning, "LS-315"},
           {{{"NCCL_P2P_DISABLE", "0"}}, Verdict::ok, ""},
           {{{"CUDA_LAUNCH_BLOCKING", "1"}}, Verdict::warning, "LS-315"},
           {{{"NCCL_SOCKET_IFNAME", "eth"}}, Verdict::ok, ""},
           {{{"NCCL_SOCKET_IFNAME", "=eth"}}, Verdict::failed, "LS-302"},
           {{{"NCCL_SOCKET_IFNAME", "^docker"}}, Verdict::ok, ""},
           {{{"NCCL_SOCKET_IFNAME", "ib0,eth0"}}, Verdict::ok, ""},
           {{{"GLOO_SOCKET_IFNAME", "ens5"}}, Verdict::failed, "LS-307"},
           {{{"OMP_NUM_THREADS", "many"}}, Verdict::warning, "LS-411"},
       }) {
    expect(judge_variables(c.environment, interfaces).front(), c.verdict, c.code,
           c.environment.empty() ? "" : c.environment.begin()->first);
  }
  EXPECT_EQ(find_variable("NCCL_ALGO")->name, "NCCL_ALGO");
  EXPECT_EQ(find_variable("NCCL_BUFFSIZE")->name, "NCCL_*");
  EXPECT_EQ(find_variable("HSA_OVERRIDE_GFX_VERSION")->name, "HSA_*");
  EXPECT_EQ(find_variable("PATH"), nullptr);
}

}  // namespace
}  // namespace lockstep::check
