// A missing or foreign CUDA plug-in is an error that says where it was looked for and what to do.
#include "rank/kernels/plugin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "support/reference/test_device.h"

namespace lockstep::kernels {
namespace {

std::string failure_with(const std::string& path) {
  ::setenv("LOCKSTEP_CUDA_PLUGIN", path.c_str(), 1);
  std::string text;
  try {
    cuda_plugin();
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::machine);
    text = error.what();
  }
  ::unsetenv("LOCKSTEP_CUDA_PLUGIN");
  return text;
}

TEST(CudaPlugin, SaysWhatIsMissing) {
  if (!test::device().is_cpu()) GTEST_SKIP() << "the plug-in is loaded already";
  if (!built_with_cuda()) {
    EXPECT_NE(failure_with("").find("CUDA=0"), std::string::npos);
    return;
  }
  EXPECT_NE(failure_with("/nowhere/liblockstep_cuda.so").find("/nowhere/liblockstep_cuda.so"), std::string::npos);
  const auto broken = std::filesystem::temp_directory_path() / "lockstep_broken_plugin.so";
  std::ofstream(broken) << "not a library";
  EXPECT_NE(failure_with(broken.string()).find("does not load"), std::string::npos);
  std::filesystem::remove(broken);
}

}  // namespace
}  // namespace lockstep::kernels
