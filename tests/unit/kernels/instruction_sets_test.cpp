// Every set of CPU kernels that this machine can run passes the kernels' own tests, not only the widest, which everything else uses.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "rank/kernels/cpu_kernels.h"
#include "support/reference/test_device.h"

extern char** environ;

namespace lockstep::kernels {
namespace {

// Tests whose kernels differ between the sets.
constexpr const char* kKernelTests =
    "RmsNorm.*:Rope.*:Swiglu.*:Bias.*:Embedding.*:CrossEntropy.*:RandomNormal.*:SumOf*:*/"
    "Updates.*:AdamW8bit.*:Nesterov.*:Nf4.*:Int8.*:"
    "StochasticRounding.*";

bool has(const std::string& name) {
  __builtin_cpu_init();
  if (name == "avx512")
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
  if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return true;
}

// This program again, with other kernels. What it printed is in the test's own output.
int run_again(const std::string& kernels, const std::string& filter) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LOCKSTEP_CPU_KERNELS=") && !std::string_view(*entry).starts_with("GTEST_"))
      variables.emplace_back(*entry);
  }
  variables.push_back("LOCKSTEP_CPU_KERNELS=" + kernels);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string program = std::filesystem::read_symlink("/proc/self/exe"), chosen = "--gtest_filter=" + filter, brief = "--gtest_brief=1";
  char* arguments[] = {program.data(), chosen.data(), brief.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment.data()) != 0) return -1;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class InstructionSets : public testing::TestWithParam<const char*> {};

TEST_P(InstructionSets, PassTheTestsOfKernels) {
  const std::string name = GetParam();
  if (!test::device().is_cpu()) GTEST_SKIP() << "for a CPU";
  if (!has(name)) GTEST_SKIP() << "this CPU has no " << name;
  if (name == cpu_kernels()) return;  // the tests around this one run with it
  EXPECT_EQ(run_again(name, "CpuKernels.AreTheOnesAskedFor"), 0);
  EXPECT_EQ(run_again(name, kKernelTests), 0);
}

INSTANTIATE_TEST_SUITE_P(Cpu, InstructionSets, testing::Values("plain", "avx2", "avx512"), [](const auto& info) { return info.param; });

TEST(CpuKernels, AreTheOnesAskedFor) {
  const char* asked = std::getenv("LOCKSTEP_CPU_KERNELS");
  if (asked != nullptr) {
    EXPECT_EQ(cpu_kernels(), asked);
  } else {
    EXPECT_EQ(cpu_kernels(), has("avx512") ? "avx512" : has("avx2") ? "avx2" : "plain");
  }
}

TEST(CpuKernels, ThatAreNotThereAreRefused) { EXPECT_EQ(run_again("neon", "CpuKernels.AreTheOnesAskedFor"), 1); }

}  // namespace
}  // namespace lockstep::kernels
