// One table says which variable of which launcher means what; variables set by hand go before those of a launcher.
#include "front/launch/place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash/hash64.h"
#include "base/process.h"
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
  const char* job[2];  // together the same on all ranks of a start, and others for another start
  constexpr bool is_slurm() const { return std::string_view(name) == "srun"; }
};
// Closest first: Open MPI's mpirun reaches other nodes through an srun of its own, whose variables its ranks inherit there; and srun can
// speak PMI, whose variables then name the same ranks.
constexpr Launcher launchers[] = {
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"SLURM_JOB_ID", "PMI_JOBID"}},
};

int integer(const std::string& name, const std::string& text) {
  const auto value = base::parse_integer(text);
  if (!value || *value < 0)
    throw base::usage_error("launch", "{}={} is not a number that can be used. It is set by a launcher or by hand.", name, text);
  return static_cast<int>(*value);
}

// Inside an sbatch script, but not under srun, SLURM sets the same variables as for the first task; a lone task is no launch of ranks
// either.
const Launcher* launcher_of(const Environment& environment) {
  for (const Launcher& launcher : launchers) {
    if (!lookup(environment, launcher.rank) || !lookup(environment, launcher.world_size)) continue;
    if (launcher.is_slurm()) {
      const bool script = lookup(environment, "SLURM_SUBMIT_DIR") && !lookup(environment, "SLURM_STEP_ID");
      if (script || lookup(environment, launcher.world_size) == "1") continue;
    }
    return &launcher;
  }
  return nullptr;
}

// Reads variables by their common name, or by that of the launcher, and remembers what it missed.
class Variables {
 public:
  Variables(const Environment& environment, const Launcher* launcher) : environment_(environment), launcher_(launcher) {}

  std::optional<int> number(const char* name, const char* Launcher::*theirs) const {
    if (const auto value = lookup(environment_, name)) return integer(name, *value);
    if (launcher_ == nullptr) return std::nullopt;
    const auto value = lookup(environment_, launcher_->*theirs);
    return value ? std::optional(integer(launcher_->*theirs, *value)) : std::nullopt;
  }

  int required(const char* name, const char* Launcher::*theirs) {
    const auto value = number(name, theirs);
    if (!value) missing_.push_back(launcher_ != nullptr ? fmt::format("{} (or {})", name, launcher_->*theirs) : name);
    return value.value_or(0);
  }

  // Ranks on this machine, where something tells. SLURM has a list of all nodes, and a variable for those who asked for so many a node.
  std::optional<int> local_world_size() const {
    const auto list = launcher_ != nullptr && launcher_->is_slurm() ? lookup(environment_, "SLURM_STEP_TASKS_PER_NODE") : std::nullopt;
    const auto node = lookup(environment_, "SLURM_NODEID");
    if (list && node && !lookup(environment_, "LOCAL_WORLD_SIZE")) {
      if (const auto tasks = tasks_on_node(*list, integer("SLURM_NODEID", *node))) return tasks;
    }
    return number("LOCAL_WORLD_SIZE", &Launcher::local_world_size);
  }

  std::string job() const {
    if (launcher_ == nullptr) return lookup(environment_, "SLURM_JOB_ID").value_or("") + "/";
    std::string name;
    for (const char* part : launcher_->job) name += lookup(environment_, part).value_or("") + "/";
    return name;
  }

  std::string master_addr(bool on_one_machine) {
    if (const auto address = lookup(environment_, "MASTER_ADDR")) return *address;
    for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      const auto nodes = lookup(environment_, list);
      if (nodes && launcher_ != nullptr && launcher_->is_slurm()) return first_host(*nodes);
    }
    if (launcher_ != nullptr && on_one_machine) return "127.0.0.1";
    missing_.push_back("MASTER_ADDR");
    return {};
  }

  int master_port() {
    if (const auto port = lookup(environment_, "MASTER_PORT")) return integer("MASTER_PORT", *port);
    if (launcher_ == nullptr) {
      missing_.push_back("MASTER_PORT");
      return 0;
    }
    // All ranks must come to the same port, and two jobs on a machine should not: it follows from the job's name.
    return first_port + static_cast<int>(base::hash64(job()) % 1000);
  }

  void refuse_if_incomplete(std::string_view launcher) const {
    if (missing_.empty()) return;
    const bool one = missing_.size() == 1;
    throw base::usage_error("launch",
                            "the environment names a rank of another launcher ({}), but {} {} missing. Set {}, unset the others, or use "
                            "--spawn to start all ranks from here.",
                            launcher, fmt::join(missing_, ", "), one ? "is" : "are", one ? "it" : "them");
  }

 private:
  const Environment& environment_;
  const Launcher* launcher_;
  std::vector<std::string> missing_;
};

void refuse_if_absurd(const Place& place) {
  if (place.world_size < 1 || place.rank >= place.world_size) {
    throw base::usage_error("launch", "RANK={} and WORLD_SIZE={}: ranks count from 0 to WORLD_SIZE - 1.", place.rank, place.world_size);
  }
  if (place.local_rank >= place.local_world_size || place.local_world_size > place.world_size) {
    throw base::usage_error("launch",
                            "LOCAL_RANK={}, LOCAL_WORLD_SIZE={} and WORLD_SIZE={} do not fit together: LOCAL_RANK < LOCAL_WORLD_SIZE <= "
                            "WORLD_SIZE.",
                            place.local_rank, place.local_world_size, place.world_size);
  }
}

// The launcher's process on this machine. Where a script of Python stands between it and this process, that says who started it.
std::int64_t launcher_process(const Environment& environment) {
  const auto told = lookup(environment, "LOCKSTEP_LAUNCHER_PID");
  return told ? integer("LOCKSTEP_LAUNCHER_PID", *told) : ::getppid();
}

// When that process began, as the clock of the wall: its ranks here agree on it.
std::string start_label(std::int64_t process) {
  const auto stat = base::process_stat(static_cast<pid_t>(process));
  constexpr std::size_t start_ticks = 22 - 3;  // field 22, counted from the state
  if (stat.size() <= start_ticks) return {};
  std::ifstream boot_file("/proc/stat");
  std::int64_t boot = 0;
  for (std::string line; std::getline(boot_file, line);) {
    if (line.starts_with("btime ")) boot = base::parse_integer(base::trim(line.substr(6))).value_or(0);
  }
  return base::time_label(boot + base::parse_integer(stat[start_ticks]).value_or(0) / ::sysconf(_SC_CLK_TCK));
}

// Characters that are safe in a file name.
std::string tidy(std::string_view text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' ? c : '_';
  return name;
}

// torchrun --standalone draws one; nobody chose it to name a run.
bool is_uuid(std::string_view text) { return text.size() == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-'; }

// Names that all ranks come to by themselves. Local ranks of one launcher process also share its start time; ranks on several machines
// and ranks started by hand only have what the environment says.
void name_job(Place& place, std::string identity, const Environment& environment) {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) identity += lookup(environment, name).value_or("") + "/";
  const bool shares_parent = place.launcher == "torchrun" || place.launcher == "mpirun";
  const std::string parent = shares_parent ? std::to_string(launcher_process(environment)) : "";
  // Ranks in different containers cannot look at each other's processes: they are to each other like ranks of other machines.
  place.job = fmt::format(
      "{:016x}", base::hash64(fmt::format("{}{}:{}/{}/{}", identity, place.master_addr, place.master_port, parent, base::pid_namespace())));

  const auto slurm = lookup(environment, "SLURM_JOB_ID");
  const auto elastic = lookup(environment, "TORCHELASTIC_RUN_ID");
  if (place.launcher == "srun" && slurm) {
    place.run_label = tidy("slurm-" + *slurm + "." + lookup(environment, "SLURM_STEP_ID").value_or("0"));
  } else if (elastic && *elastic != "none" && !is_uuid(*elastic)) {
    place.run_label = tidy(*elastic);
  } else if (shares_parent && place.local_world_size == place.world_size) {
    place.run_label = start_label(launcher_process(environment));
  } else if (elastic && is_uuid(*elastic)) {
    place.run_label = elastic->substr(0, 8);
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

std::optional<int> tasks_on_node(std::string_view list, int node) {
  for (const std::string_view part : base::split(list, ',')) {
    const std::size_t bracket = part.find("(x");
    const auto tasks = base::parse_integer(part.substr(0, bracket));
    const auto nodes = bracket == std::string_view::npos ? std::optional<std::int64_t>(1)
                                                         : base::parse_integer(part.substr(bracket + 2, part.size() - bracket - 3));
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return static_cast<int>(*tasks);
    node -= static_cast<int>(*nodes);
  }
  return std::nullopt;
}

std::optional<Place> place_from_launcher(const Environment& environment) {
  const Launcher* launcher = launcher_of(environment);
  const auto is_set = [&](const char* name) { return lookup(environment, name).has_value(); };
  constexpr const char* five[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  if (launcher == nullptr && std::none_of(std::begin(five), std::end(five), is_set)) return std::nullopt;

  Variables variables(environment, launcher);
  Place place;
  place.launcher = launcher != nullptr ? launcher->name : "the environment";
  if (is_set("TORCHELASTIC_RUN_ID") || is_set("TORCHELASTIC_USE_AGENT_STORE")) place.launcher = "torchrun";
  place.rank = variables.required("RANK", &Launcher::rank);
  place.local_rank = variables.required("LOCAL_RANK", &Launcher::local_rank);
  place.world_size = variables.required("WORLD_SIZE", &Launcher::world_size);
  const auto local_world = variables.local_world_size();
  place.master_addr = variables.master_addr(local_world.value_or(place.world_size) == place.world_size);
  place.master_port = variables.master_port();
  variables.refuse_if_incomplete(place.launcher);

  const bool loopback = place.master_addr == "127.0.0.1" || place.master_addr == "localhost" || place.master_addr == "::1";
  place.local_world_size = local_world.value_or(loopback ? place.world_size : place.local_rank + 1);
  // Never from the guess: the last rank alone would come to another answer than the others, and they would miss each other.
  place.on_one_host = loopback || local_world == place.world_size;
  refuse_if_absurd(place);
  name_job(place, variables.job(), environment);
  return place;
}

}  // namespace lockstep::launch
