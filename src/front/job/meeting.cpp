// From settings or another launcher's variables to a rendezvous, and from its agreement to a job.
#include "front/job/meeting.h"

#include <fmt/format.h>

#include "base/error.h"
#include "front/job/naming.h"
#include "front/launch/meet/socket.h"

namespace lockstep::job {

namespace fs = std::filesystem;
using launch::meet::Agreement;
using launch::meet::Rendezvous;

bool Meeting::is_needed(const Setup& setup) {
  if (setup.place) return setup.place->launcher != "torchrun" && setup.place->world_size > 1;
  return setup.settings.values.parallel.nnodes > 1;
}

Meeting::Meeting(Setup& setup, const launch::Environment& environment, journal::Identity identity,
                 std::vector<launch::meet::SharedFolder> folders)
    : setup_(setup) {
  setup_.job.run_key = setup_.job.id;
  if (setup_.job.foreign) setup_.job.identity = journal::to_text(identity);
  if (!is_needed(setup_)) return;
  Rendezvous where = rendezvous(environment);
  facts_ = {.node = where.node,
            .nodes = where.nodes,
            .ranks = static_cast<int>(setup_.job.ranks.size()),
            .host = launch::meet::host_name(),
            .folders = std::move(folders),
            .identity = std::move(identity)};
  machines_ = launch::meet::make_machines(std::move(where));
}

Rendezvous Meeting::rendezvous(const launch::Environment& environment) {
  const config::ParallelConfig& parallel = setup_.settings.values.parallel;
  Rendezvous where;
  where.timeout_s = parallel.timeout_s;
  where.secret = launch::meet::given_secret(environment);
  if (setup_.place) {
    const launch::Place& place = *setup_.place;
    where.node = place.rank;
    where.nodes = place.world_size;
    where.master_addr = place.master_addr;
    where.master_port = place.master_port;
    where.address_setting = "MASTER_ADDR";
    where.ranks_are_machines = true;
    where.on_one_host = place.on_one_host;
    // Nobody could copy a secret to ranks that a launcher has started already: they find it where only this user reads.
    if (where.secret.empty())
      where.secret_file =
          where.on_one_host ? fs::path(journal::pages_folder(place.job).string() + ".secret") : setup_.job.folder.root / ".secret";
    return where;
  }
  where.node = static_cast<int>(parallel.node_rank);
  where.nodes = static_cast<int>(parallel.nnodes);
  where.master_addr = parallel.master_addr;
  where.master_port = parallel.master_port > 0 ? static_cast<int>(parallel.master_port) : launch::first_port;
  if (where.secret.empty() && where.node > 0) {
    throw base::usage_error(
        "launch",
        "LOCKSTEP_SECRET is not set. Machine 0 has printed the command that starts this machine, with the secret in it: "
        "copy it from there. Or set the same LOCKSTEP_SECRET on all machines before they start.");
  }
  if (where.secret.empty()) where.secret = made_secret_ = launch::meet::fresh_secret();
  return where;
}

std::string Meeting::invitation(const std::string& program, std::span<const std::string> args) const {
  if (made_secret_.empty()) return {};
  const config::RunConfig& config = setup_.settings.values;
  const std::string address = config.parallel.master_addr == "127.0.0.1" ? launch::meet::host_name() : config.parallel.master_addr;
  return fmt::format("LOCKSTEP_SECRET={} {}", made_secret_, command_for_machine(program, args, config, address));
}

std::optional<launch::Outcome> Meeting::begin(int restart, launch::Observer& observer, const launch::StopWish& stop) {
  lease_.reset();  // connections of the dead may still hold the port
  if (machines_) {
    const config::RunConfig& config = setup_.settings.values;
    for (journal::Fact& fact : facts_.identity) {
      if (restart > 0 && fact.name == "checkpoint.resume") fact.value = config.checkpoint.resume;  // a new machine 0 goes on likewise
    }
    const auto gathered = machines_->gather(facts_, restart, config.checkpoint.resume == "auto", observer, stop);
    if (!gathered.agreement) return gathered.outcome;
    place_ranks(*gathered.agreement);
  }
  open_store();
  return std::nullopt;
}

void Meeting::place_ranks(const Agreement& agreement) {
  launch::Job& job = setup_.job;
  int rank = agreement.first_rank;
  for (launch::LocalRank& local : job.ranks) local.rank = rank++;
  job.run_key = agreement.job;
  job.restart = agreement.restart;
  job.bind_host = agreement.bind_host;
  job.world_size = agreement.world_size;
  plan_for_world(setup_);
  // Whether a restart finds a checkpoint is machine 0's word: a shared disk may show it later elsewhere.
  if (!machines_->judges() && agreement.restart > 0 && agreement.resume) {
    setup_.settings.values.checkpoint.resume = "auto";
    setup_.settings.sources["checkpoint.resume"] = {config::Origin::derived, "a restart"};
  }
}

void Meeting::open_store() {
  launch::Job& job = setup_.job;
  if (setup_.place && !machines_) return;  // torchrun's, or a lone rank
  job.master_addr = "127.0.0.1";
  job.store_socket = -1;
  if (machines_ && !machines_->judges()) {
    job.master_port = machines_->way_to_store(0);
    return;
  }
  if (machines_) {
    lease_ = launch::PortLease::take(0);
    if (!lease_) throw base::machine_error("launch", "no port of 127.0.0.1 is free.");
    machines_->way_to_store(lease_->port());
  } else {
    std::string note;
    lease_ = launch::choose_port(static_cast<int>(setup_.settings.values.parallel.master_port), note);
    if (!note.empty()) setup_.plan.notes.push_back(note);
  }
  job.master_port = lease_->port();
  job.store_socket = lease_->socket();
}

}  // namespace lockstep::job
