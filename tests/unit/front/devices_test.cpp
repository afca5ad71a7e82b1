// Which GPUs are visible and which rank gets which.
#include "front/launch/devices/devices.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

using config::Backend;
using config::DeviceKind;

std::vector<Gpu> four_gpus() {
  std::vector<Gpu> gpus;
  for (int i = 0; i < 4; ++i)
    gpus.push_back({i, "NVIDIA H200", "GPU-" + std::string(1, static_cast<char>('a' + i)) + "0-1111", 150ull << 30, 149ull << 30});
  return gpus;
}

Machine machine_with(int gpus, int cores = 8, const std::optional<std::string>& variable = std::nullopt) {
  Machine machine;
  const auto all = four_gpus();
  machine.installed.assign(all.begin(), all.begin() + gpus);
  machine.visible = visible_gpus(machine.installed, variable);
  machine.cores = cores;
  return machine;
}

TEST(Devices, CudaVisibleDevicesIsReadAsCudaReadsIt) {
  struct Case {
    std::optional<std::string> variable;
    std::string indices;
  };
  for (const auto& c : std::vector<Case>{
           {std::nullopt, "0 1 2 3"},
           {"", ""},
           {"2,3", "2 3"},
           {"3,0", "3 0"},
           {" 1 , 2 ", "1 2"},
           {"0,9,1", "0"},  // what follows a wrong one is not seen
           {"-1", ""},
           {"1,-1,2", "1"},
           {"NoDevFiles", ""},
           {"1,1", ""},  // doubled: none
           {"GPU-c0-1111,GPU-a0-1111", "2 0"},
           {"GPU-b", "1"},  // a prefix that only one has
           {"GPU-", ""},    // of several
           {"GPU-zz,0", ""},
           {"1,GPU-b0-1111", ""},  // the same one under two names
           {"MIG-11-22", "-1"},
       }) {
    std::vector<std::string> indices;
    for (const auto& gpu : visible_gpus(four_gpus(), c.variable)) indices.push_back(std::to_string(gpu.gpu.index));
    EXPECT_EQ(base::join(indices, " "), c.indices) << c.variable.value_or("(not set)");
  }
}

struct SelectionCase {
  std::string what;
  DeviceWish wish;
  Machine machine;
  std::string devices;    // of the ranks
  std::string visible;    // for the workers
  std::string note = "";  // must be in the notes; empty: there are none
};

TEST(Devices, Selection) {
  for (const auto& c : std::vector<SelectionCase>{
           {"all GPUs", {}, machine_with(4), "cuda:0 cuda:1 cuda:2 cuda:3", "0,1,2,3"},
           {"--gpus touches no other", {.gpu_ids = {2, 3}}, machine_with(4), "cuda:0 cuda:1", "2,3"},
           {"--gpus in that order", {.gpu_ids = {3, 1}}, machine_with(4), "cuda:0 cuda:1", "3,1"},
           {"--gpus counts among the visible", {.gpu_ids = {1}}, machine_with(4, 8, "2,3"), "cuda:0", "3", "only GPU 1 of 2"},
           {"UUIDs are passed on",
            {.gpu_ids = {1}},
            machine_with(4, 8, "GPU-d0-1111,GPU-a0-1111"),
            "cuda:0",
            "GPU-a0-1111",
            "only GPU 1 of 2"},
           {"--num-gpus", {.num_gpus = 3}, machine_with(4), "cuda:0 cuda:1 cuda:2", "0,1,2"},
           {"--ranks below the GPUs", {.ranks = 2}, machine_with(4), "cuda:0 cuda:1", "0,1"},
           {"LOCKSTEP_SINGLE_GPU", {.one_rank = true}, machine_with(4), "cuda:0", "0", "only GPU 0 of 4 is used"},
           {"one of one is no news", {.one_rank = true}, machine_with(1), "cuda:0", "0"},
           {"backend single", {.backend = Backend::single}, machine_with(2), "cuda:0", "0", "only GPU 0 of 2 is used"},
           {"LOCKSTEP_OVERSUBSCRIBE",
            {.ranks = 3, .oversubscribe = true},
            machine_with(2),
            "cuda:0 cuda:1 cuda:0",
            "0,1",
            "3 ranks share 2 GPUs"},
           {"oversubscribe changes nothing where there is enough",
            {.ranks = 2, .oversubscribe = true},
            machine_with(2),
            "cuda:0 cuda:1",
            "0,1"},
           {"srun shows each rank its own GPU",
            {.ranks = 4, .bound_by_launcher = true},
            machine_with(4, 8, "3"),
            "cuda:0 cuda:0 cuda:0 cuda:0",
            "3"},
           {"forced to one against a wish for two",
            {.ranks = 2, .one_rank = true},
            machine_with(1),
            "cuda:0",
            "0",
            "one rank is used, not 2"},
           {"no GPU: two CPU ranks", {}, machine_with(0), "cpu cpu", ""},
           {"no GPU, one core", {}, machine_with(0, 1), "cpu", ""},
           {"no GPU, asked for ranks", {.ranks = 3}, machine_with(0, 1), "cpu cpu cpu", ""},
           {"--device cpu hides the GPUs", {.kind = DeviceKind::cpu}, machine_with(4), "cpu cpu", ""},
           {"not distributed", {.one_rank = true}, machine_with(0), "cpu", ""},
           {"all hidden: CPU", {}, machine_with(4, 8, ""), "cpu cpu", ""},
       }) {
    const Selection selection = select_devices(c.wish, c.machine);
    std::vector<std::string> devices;
    for (const auto& rank : selection.ranks) devices.push_back(rank.device);
    EXPECT_EQ(base::join(devices, " "), c.devices) << c.what;
    EXPECT_EQ(selection.visible_devices.value_or("(not set)"), c.visible) << c.what;
    const std::string notes = base::join(selection.notes, "\n");
    if (c.note.empty()) {
      EXPECT_EQ(notes, "") << c.what;
    } else {
      EXPECT_NE(notes.find(c.note), std::string::npos) << c.what << ": " << notes;
    }
  }
}

TEST(Devices, WishesThatCannotBeMetSayWhatThereIs) {
  Machine broken = machine_with(0);
  broken.problem = "the NVIDIA driver does not answer";
  struct Case {
    std::string what;
    DeviceWish wish;
    Machine machine;
    std::vector<std::string> says;
  };
  for (const auto& c : std::vector<Case>{
           {"wrong id", {.gpu_ids = {0, 5}}, machine_with(2), {"there is no GPU 5", "0: NVIDIA H200, 150.0 GiB", "1: NVIDIA H200"}},
           {"wrong id, none there", {.gpu_ids = {0}}, machine_with(0), {"there is no GPU 0", "no GPU in this machine"}},
           {"hidden id", {.gpu_ids = {2}}, machine_with(4, 8, "1,3"), {"there is no GPU 2", "nvidia-smi calls it 3"}},
           {"twice", {.gpu_ids = {1, 1}}, machine_with(2), {"names GPU 1 twice"}},
           {"too many", {.num_gpus = 3}, machine_with(2), {"--num-gpus 3", "only 2"}},
           {"too many ranks", {.ranks = 3}, machine_with(2), {"3 ranks need 3 GPUs", "LOCKSTEP_OVERSUBSCRIBE"}},
           {"--device cuda without", {.kind = DeviceKind::cuda}, machine_with(0), {"no GPU in this machine", "--device cpu"}},
           {"--device cuda, hidden", {.kind = DeviceKind::cuda}, machine_with(2, 8, ""), {"CUDA_VISIBLE_DEVICES hides"}},
           {"--device cuda, broken driver", {.kind = DeviceKind::cuda}, broken, {"driver does not answer"}},
           {"contradiction", {.kind = DeviceKind::cpu, .gpu_ids = {0}}, machine_with(2), {"contradict"}},
           {"nccl on the CPU", {.backend = Backend::nccl}, machine_with(0), {"nccl needs GPUs", "gloo"}},
           {"single with ranks", {.backend = Backend::single, .ranks = 2}, machine_with(0), {"single is for one rank"}},
       }) {
    try {
      select_devices(c.wish, c.machine);
      FAIL() << c.what << ": nothing was thrown";
    } catch (const base::UserError& error) {
      for (const auto& text : c.says) EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << c.what << ": " << error.what();
    }
  }
}

TEST(Devices, ADriverThatDoesNotAnswerIsSaid) {
  Machine broken = machine_with(0);
  broken.problem = "the NVIDIA driver does not answer";
  const auto notes = select_devices({}, broken).notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("driver does not answer"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
