// Reads /proc, the control group and the system's limits, and says what they mean.
#include "front/check/host.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/file/descriptor.h"
#include "base/text.h"

namespace lockstep::check {
namespace {

namespace fs = std::filesystem;

// A run folder need not exist yet: the folder that it would be made in tells.
fs::path nearest_that_exists(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!fs::exists(at, error) && at != at.parent_path()) at = at.parent_path();
  return at;
}

std::optional<std::uint64_t> limit_of(int which) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(which), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string in_words(const std::optional<std::uint64_t>& limit) { return limit ? std::to_string(*limit) : "any number of"; }

}  // namespace

Disk look_at_disk(std::string what, const fs::path& path) {
  Disk disk{.what = std::move(what), .path = path};
  const fs::path at = nearest_that_exists(path);
  struct statvfs room {};
  if (::statvfs(at.c_str(), &room) != 0) {
    disk.problem = std::strerror(errno);
    return disk;
  }
  disk.free_bytes = room.f_bavail * room.f_frsize;
  disk.total_bytes = room.f_blocks * room.f_frsize;
  // Not access(): root may by rights, and still not on a file system that is read-only.
  std::string probe = (at / ".lockstep-check-XXXXXX").string();
  const base::Descriptor file(::mkostemp(probe.data(), O_CLOEXEC));
  if (file.open())
    ::unlink(probe.c_str());
  else
    disk.problem = std::strerror(errno);
  return disk;
}

Limits look_at_limits() { return {limit_of(RLIMIT_NOFILE), limit_of(RLIMIT_NPROC), limit_of(RLIMIT_MEMLOCK)}; }

Clock look_at_clock() {
  Clock clock{.now = std::time(nullptr)};
  timex state{};
  const int answer = ::adjtimex(&state);
  if (answer >= 0) clock.synchronized = answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  return clock;
}

Finding judge(const Disk& disk, std::uint64_t needed, std::uint64_t wanted) {
  const std::string where = fmt::format("{}: {}", disk.what, disk.path.string());
  if (!disk.problem.empty()) {
    const bool full = disk.problem == std::strerror(ENOSPC) || disk.problem == std::strerror(EDQUOT);
    return failed(full ? "LS-405" : "LS-407", fmt::format("{} cannot be written to: {}", where, disk.problem));
  }
  const std::string room = fmt::format("{}, {} free of {}", where, base::human_bytes(disk.free_bytes), base::human_bytes(disk.total_bytes));
  if (disk.free_bytes < needed) return failed("LS-405", fmt::format("{}; {} are needed", room, base::human_bytes(needed)));
  if (disk.free_bytes < wanted) return warning("LS-405", fmt::format("{}; {} would be safe", room, base::human_bytes(wanted)));
  return good(room);
}

Finding judge_shared_memory(const Disk& shared, int ranks, bool on_gpus) {
  if (!shared.problem.empty()) return failed("LS-404", fmt::format("{} cannot be written to: {}", shared.path.string(), shared.problem));
  const auto count = static_cast<std::uint64_t>(std::max(1, ranks));
  const std::uint64_t needed = count * mib;  // the ranks' pages
  const std::uint64_t wanted =
      on_gpus && ranks > 1 ? count * 32 * mib + 64 * mib : needed;  // and NCCL's buffers, where peers have no other way
  const std::string room =
      fmt::format("{}, {} free of {}", shared.path.string(), base::human_bytes(shared.free_bytes), base::human_bytes(shared.total_bytes));
  const std::string ask = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (shared.free_bytes < needed) return failed("LS-404", fmt::format("{}; {} need {}", room, ask, base::human_bytes(needed)));
  if (shared.free_bytes < wanted) return warning("LS-404", fmt::format("{}; {} on GPUs want {}", room, ask, base::human_bytes(wanted)));
  return good(room);
}

std::vector<Finding> judge(const Limits& limits, int ranks, int machines) {
  std::vector<Finding> findings;
  const auto count = static_cast<std::uint64_t>(std::max(1, ranks));
  const std::uint64_t files_needed = 128 + 16 * count, files_wanted = 512 + 32 * count;
  const std::string files = fmt::format("{} open files", in_words(limits.files));
  if (limits.files && *limits.files < files_needed)
    findings.push_back(failed("LS-406", fmt::format("{} are allowed (ulimit -n); {} ranks need {}", files, ranks, files_needed)));
  else if (limits.files && *limits.files < files_wanted)
    findings.push_back(warning("LS-406", fmt::format("{} are allowed (ulimit -n); {} would be safe", files, files_wanted)));
  const std::uint64_t processes_wanted = 64 + 32 * count;
  const std::string processes = fmt::format("{} processes and threads", in_words(limits.processes));
  if (limits.processes && *limits.processes < processes_wanted)
    findings.push_back(warning("LS-411", fmt::format("{} are allowed (ulimit -u); {} ranks want {}", processes, ranks, processes_wanted)));
  std::error_code error;
  const bool infiniband = machines > 1 && fs::exists("/sys/class/infiniband", error);
  if (infiniband && limits.locked_bytes && *limits.locked_bytes < 64 * mib)
    findings.push_back(
        warning("LS-409", fmt::format("{} may be locked (ulimit -l), and there is InfiniBand", base::human_bytes(*limits.locked_bytes))));
  if (findings.empty()) findings.push_back(good(fmt::format("{}, {}", files, processes)));
  return findings;
}

Finding judge(const base::HostMemory& memory, int ranks) {
  std::string words = fmt::format("{} usable of {}", base::human_bytes(memory.usable()), base::human_bytes(memory.total_bytes));
  if (memory.container_limit_bytes) words += fmt::format("; this container may use {}", base::human_bytes(*memory.container_limit_bytes));
  const auto count = static_cast<std::uint64_t>(std::max(1, ranks));
  const std::string_view code = memory.container_limit_bytes && memory.usable() < memory.available_bytes ? "LS-408" : "LS-402";
  if (memory.usable() < count * 300 * mib) return failed(code, fmt::format("{}; {} ranks need more to start at all", words, ranks));
  if (memory.usable() < count * gib) return warning(code, fmt::format("{}; {} ranks may run out of it", words, ranks));
  return good(words);
}

Finding judge(const Clock& clock, int machines) {
  constexpr std::time_t beginning_of_2026 = 1'767'225'600;
  const std::string words = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(clock.now));
  if (clock.now < beginning_of_2026) return failed("LS-410", fmt::format("{}: the clock is years behind", words));
  if (clock.synchronized == false && machines > 1)
    return warning("LS-410", fmt::format("{}, not synchronized: the machines' clocks drift apart", words));
  return good(fmt::format("{}{}", words, clock.synchronized == true ? ", synchronized" : ""));
}

}  // namespace lockstep::check
