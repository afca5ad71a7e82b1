// How long a save blocks training and how fast it reaches the disk, against dd with fsync on as many bytes.
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "rank/checkpoint/checkpoint.h"

namespace lockstep {
namespace {

// dd with fsync, and past the page cache where asked.
double dd_seconds(const std::filesystem::path& path, std::int64_t mib, std::string_view how) {
  const std::int64_t start = base::now_ns();
  const std::string command = fmt::format("dd if=/dev/zero of='{}' bs=16M count={} {} 2>/dev/null", path.string(), mib / 16, how);
  const double seconds = std::system(command.c_str()) == 0 ? base::seconds_since(start) : 0;
  std::filesystem::remove(path);
  return seconds;
}

}  // namespace
}  // namespace lockstep

// checkpoint_speed FOLDER [MIB] [ROUNDS]: MIB of weights and optimizer state together.
int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc < 2) return std::fprintf(stderr, "usage: checkpoint_speed FOLDER [MIB] [ROUNDS]\n"), 2;
  const std::filesystem::path folder = argv[1];
  const std::int64_t mib = argc > 2 ? std::atoll(argv[2]) : 1024;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  constexpr std::int64_t layers = 16;
  const std::int64_t elements = (mib << 20) / 4 / 3 / layers;
  checkpoint::Contents contents;
  contents.state_json = "{}";
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto name = fmt::format("layers.{}.weight", layer);
    contents.model.push_back({name, at::full({elements}, 0.1 * static_cast<double>(layer))});
    contents.optimizer.push_back({"exp_avg." + name, at::full({elements}, 0.2)});
    contents.optimizer.push_back({"exp_avg_sq." + name, at::full({elements}, 0.3)});
  }
  const double bytes = static_cast<double>(elements * layers * 3 * 4);
  std::filesystem::create_directories(folder);
  checkpoint::Saver saver(base::real_files(), {.folder = folder, .keep = 0});
  for (int round = 0; round < rounds; ++round) {
    const double dd = dd_seconds(folder / "plain", mib, "conv=fsync");
    const double direct = dd_seconds(folder / "plain", mib, "conv=fsync oflag=direct");
    const std::int64_t start = base::now_ns();
    saver.begin(round, contents);
    const double blocked = base::seconds_since(start);
    saver.wait();
    const double whole = base::seconds_since(start);
    std::filesystem::remove_all(folder / fmt::format("step-{:06}", round));
    std::printf(
        "{\"bytes\": %.0f, \"dd_seconds\": %.3f, \"dd_direct_seconds\": %.3f, \"blocked_seconds\": %.3f, \"save_seconds\": %.3f, "
        "\"times_dd\": %.2f}\n",
        bytes, dd, direct, blocked, whole, dd / whole);
  }
  return 0;
}
