// One small product, tried elsewhere first.
#include "rank/kernels/broken_tiles.h"

#include <cpuid.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <cstdlib>
#include <string_view>

namespace lockstep::kernels {

namespace {

constexpr const char* kSetting = "ONEDNN_MAX_CPU_ISA";

bool says_it_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1u << 24)) != 0;
}

}  // namespace

void avoid_broken_tiles() {
  const char* device = std::getenv("LOCKSTEP_DEVICE");
  const bool multiplies_here = device == nullptr || !std::string_view(device).starts_with("cuda");
  if (!multiplies_here || std::getenv(kSetting) != nullptr || !says_it_has_tiles()) return;
  const pid_t child = ::fork();
  if (child < 0) return;
  if (child == 0) {
    ::signal(SIGILL, SIG_DFL);
    const rlimit nothing{0, 0};
    ::setrlimit(RLIMIT_CORE, &nothing);
    at::set_num_threads(1);
    const at::Tensor x = at::ones({256, 256}, at::kBFloat16);
    at::mm(x, x);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGILL) ::setenv(kSetting, "AVX512_CORE_FP16", 1);  // all but the tiles
}

}  // namespace lockstep::kernels
