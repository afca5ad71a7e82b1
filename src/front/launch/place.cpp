// One table says which variable of which launcher means what; variables set by hand go before those of a launcher.
#include "front/launch/place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "front/launch/ports.h"

namespace lockstep::launch {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};
constexpr Launcher launchers[] = {
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

int integer(const std::string& name, const std::string& text) {
  const auto value = base::parse_integer(text);
  if (!value || *value < 0) throw base::usage_error("launch", "{}={} is not a number that can be used. It is set by a launcher or by hand.", name, text);
  return static_cast<int>(*value);
}

// Inside an sbatch script, but not under srun, SLURM sets the same variables as for the first task; a lone task is no launch of ranks either.
const Launcher* launcher_of(const Environment& environment) {
  for (const Launcher& launcher : launchers) {
    if (!lookup(environment, launcher.rank) || !lookup(environment, launcher.world_size)) continue;
    if (std::string_view(launcher.name) == "srun") {
      const bool script = lookup(environment, "SLURM_SUBMIT_DIR") && !lookup(environment, "SLURM_STEP_ID");
      if (script || lookup(environment, launcher.world_size) == "1") continue;
    }
    return &launcher;
  }
  return nullptr;
}

// When the launcher's process on this machine began, as the clock of the wall: its ranks here agree on it.
std::string parent_start_label() {
  std::ifstream file(fmt::format("/proc/{}/stat", ::getppid()));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream words(text.substr(name_end + 1));
  std::string word;
  for (int field = 3; field <= 22 && words >> word; ++field) {
  }
  std::ifstream boot_file("/proc/stat");
  std::int64_t boot = 0;
  for (std::string line; std::getline(boot_file, line);) {
    if (line.starts_with("btime ")) boot = base::parse_integer(base::trim(line.substr(6))).value_or(0);
  }
  const std::time_t start = boot + base::parse_integer(word).value_or(0) / ::sysconf(_SC_CLK_TCK);
  std::tm parts{};
  localtime_r(&start, &parts);
  char label[32];
  std::strftime(label, sizeof label, "%Y%m%d-%H%M%S", &parts);
  return label;
}

// Characters that are safe in a file name.
std::string tidy(std::string_view text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' ? c : '_';
  return name;
}

// Names that all ranks come to by themselves. Local ranks of one launcher process also share its start time; ranks on several machines
// and ranks started by hand only have what the environment says.
void name_job(Place& place, const Environment& environment) {
  std::string identity;
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    identity += lookup(environment, name).value_or("") + "/";
  }
  const bool shares_parent = place.launcher == "torchrun" || place.launcher == "mpirun";
  const std::string parent = shares_parent ? std::to_string(::getppid()) : "";
  place.job = fmt::format("{:016x}", base::hash64(fmt::format("{}{}:{}/{}", identity, place.master_addr, place.master_port, parent)));

  const auto slurm = lookup(environment, "SLURM_JOB_ID");
  const auto elastic = lookup(environment, "TORCHELASTIC_RUN_ID");
  if (place.launcher == "srun" && slurm) {
    place.run_label = tidy("slurm-" + *slurm + "." + lookup(environment, "SLURM_STEP_ID").value_or("0"));
  } else if (elastic && *elastic != "none") {
    place.run_label = tidy(*elastic);
  } else if (shares_parent && place.local_world_size == place.world_size) {
    place.run_label = parent_start_label();
  } else {
    place.run_label = std::to_string(place.master_port);
  }
}

}  // namespace

std::string first_host(std::string_view list) {
  const std::size_t comma = list.find(',');
  const std::size_t bracket = list.find('[');
  if (bracket == std::string_view::npos || comma < bracket) return std::string(list.substr(0, comma));
  const std::string_view inside = list.substr(bracket + 1);
  return std::string(list.substr(0, bracket)) + std::string(inside.substr(0, inside.find_first_of(",-]")));
}

std::optional<Place> place_from_launcher(const Environment& environment) {
  const Launcher* launcher = launcher_of(environment);
  const auto by_hand = [&](const char* name) { return lookup(environment, name); };
  const char* five[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  bool any = launcher != nullptr;
  for (const char* name : five) any = any || by_hand(name).has_value();
  if (!any) return std::nullopt;

  Place place;
  place.launcher = launcher != nullptr ? launcher->name : "the environment";
  if (by_hand("TORCHELASTIC_RUN_ID") || by_hand("TORCHELASTIC_USE_AGENT_STORE")) place.launcher = "torchrun";

  std::vector<std::string> missing;
  const auto read = [&](const char* name, const char* theirs) -> std::optional<int> {
    if (const auto value = by_hand(name)) return integer(name, *value);
    if (launcher != nullptr && theirs != nullptr) {
      if (const auto value = lookup(environment, theirs)) return integer(theirs, *value);
    }
    return std::nullopt;
  };
  const auto require = [&](const char* name, const char* theirs) {
    const auto value = read(name, theirs);
    if (!value) missing.push_back(launcher != nullptr && theirs != nullptr ? fmt::format("{} (or {})", name, theirs) : name);
    return value.value_or(0);
  };
  place.rank = require("RANK", launcher != nullptr ? launcher->rank : nullptr);
  place.local_rank = require("LOCAL_RANK", launcher != nullptr ? launcher->local_rank : nullptr);
  place.world_size = require("WORLD_SIZE", launcher != nullptr ? launcher->world_size : nullptr);
  const auto local_world = read("LOCAL_WORLD_SIZE", launcher != nullptr ? launcher->local_world_size : nullptr);

  if (const auto address = by_hand("MASTER_ADDR")) {
    place.master_addr = *address;
  } else if (const auto nodes = lookup(environment, "SLURM_STEP_NODELIST"); nodes && place.launcher == "srun") {
    place.master_addr = first_host(*nodes);
  } else if (const auto job_nodes = lookup(environment, "SLURM_JOB_NODELIST"); job_nodes && place.launcher == "srun") {
    place.master_addr = first_host(*job_nodes);
  } else if (launcher != nullptr && local_world.value_or(place.world_size) == place.world_size) {
    place.master_addr = "127.0.0.1";
  } else {
    missing.push_back("MASTER_ADDR");
  }
  if (const auto port = by_hand("MASTER_PORT")) {
    place.master_port = integer("MASTER_PORT", *port);
  } else if (launcher != nullptr) {
    // All ranks must come to the same port, and two jobs on a machine should not: it follows from the job's name.
    std::string job;
    for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) job += lookup(environment, name).value_or("");
    place.master_port = first_port + static_cast<int>(base::hash64(job) % 1000);
  } else {
    missing.push_back("MASTER_PORT");
  }

  if (!missing.empty()) {
    throw base::usage_error("launch",
                            "the environment names a rank of another launcher ({}), but {} {} missing. Set {}, unset the others, or use --spawn to start all "
                            "ranks from here.",
                            place.launcher, fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are", missing.size() == 1 ? "it" : "them");
  }
  const bool one_machine = place.master_addr == "127.0.0.1" || place.master_addr == "localhost" || place.master_addr == "::1";
  place.local_world_size = local_world.value_or(one_machine ? place.world_size : place.local_rank + 1);
  if (place.world_size < 1 || place.rank >= place.world_size) {
    throw base::usage_error("launch", "RANK={} and WORLD_SIZE={}: ranks count from 0 to WORLD_SIZE - 1.", place.rank, place.world_size);
  }
  if (place.local_rank >= place.local_world_size || place.local_world_size > place.world_size) {
    throw base::usage_error("launch", "LOCAL_RANK={}, LOCAL_WORLD_SIZE={} and WORLD_SIZE={} do not fit together: LOCAL_RANK < LOCAL_WORLD_SIZE <= WORLD_SIZE.",
                            place.local_rank, place.local_world_size, place.world_size);
  }
  name_job(place, environment);
  return place;
}

}  // namespace lockstep::launch
