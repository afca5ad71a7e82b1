// The machine: where ranks meet, what they may use of it.
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <set>

#include "base/file/cache_folder.h"
#include "base/text.h"
#include "front/check/host.h"
#include "front/check/lists.h"
#include "front/check/variables.h"
#include "front/launch/meet/socket.h"
#include "front/launch/place.h"
#include "front/launch/ports.h"
#include "layout/decoder.h"

namespace lockstep::check {
namespace {

namespace fs = std::filesystem;

int machines_of(const Context& context) { return static_cast<int>(context.settings.values.parallel.nnodes); }

// "10.0.0.2", "127.0.1.1": what a name stands for.
std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return {};
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) addresses.emplace_back(text);
  }
  ::freeaddrinfo(found);
  return addresses;
}

}  // namespace

std::vector<std::string> network_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  std::set<std::string> names;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if ((one->ifa_flags & IFF_UP) != 0) names.insert(one->ifa_name);
  }
  ::freeifaddrs(found);
  return {names.begin(), names.end()};
}

Outcome check_launcher(Context& context) {
  if (context.settings.values.launch.spawn) return {{good("ranks are started from here (--spawn)")}};
  const auto place = launch::place_from_launcher(context.environment);
  if (!place) return {{good("no variables of another launcher: ranks are started from here")}};
  return {{good(
      fmt::format("{} has made this rank {} of {}; a check starts ranks of its own", place->launcher, place->rank, place->world_size))}};
}

Outcome check_variables(Context& context) { return {judge_variables(context.environment, network_interfaces())}; }

Outcome check_port(Context& context) {
  const int asked = static_cast<int>(context.settings.values.parallel.master_port);
  std::string note;
  const launch::PortLease lease = launch::choose_port(asked, note);
  std::string words = fmt::format("port {} of 127.0.0.1 is free", lease.port());
  if (!note.empty()) words += fmt::format("; {} is held by {}", launch::first_port, launch::who_listens(launch::first_port));
  return {{good(words)}, {{"port", lease.port()}}};
}

Outcome check_names(Context& context) {
  const std::string name = launch::meet::host_name();
  const std::vector<std::string> addresses = addresses_of(name);
  const bool alone = machines_of(context) < 2;
  const auto& parallel = context.settings.values.parallel;
  if (!alone && parallel.node_rank > 0 && addresses_of(parallel.master_addr).empty())
    return {{failed("LS-306", fmt::format("machine 0's name {} (--master-addr) does not resolve here", parallel.master_addr))}};
  if (addresses.empty()) {
    const std::string words = fmt::format("{} does not resolve", name);
    if (alone) return {{good(words + ", which matters between machines only")}};
    return {{warning("LS-306", words)}};
  }
  const bool loops =
      std::all_of(addresses.begin(), addresses.end(), [](const std::string& one) { return one.starts_with("127.") || one == "::1"; });
  const std::string words = fmt::format("{} is {}", name, base::join(addresses, ", "));
  if (loops && !alone)
    return {{warning("LS-307", words + ", which no other machine can reach", "give --master-addr as an IP address of machine 0")}};
  return {{good(words)}};
}

Outcome check_shared_memory(Context& context) {
  return {{judge_shared_memory(look_at_disk("shared memory", "/dev/shm"), context.ranks, context.on_gpus)}};
}

Outcome check_limits(Context& context) { return {judge(look_at_limits(), context.ranks, machines_of(context))}; }

Outcome check_memory(Context& context) {
  const base::HostMemory memory = base::look_at_host_memory();
  Outcome outcome{{judge(memory, context.ranks)}, {{"total_bytes", memory.total_bytes}, {"available_bytes", memory.available_bytes}}};
  if (memory.container_limit_bytes) outcome.numbers["container_limit_bytes"] = *memory.container_limit_bytes;
  return outcome;
}

Outcome check_disks(Context& context) {
  const config::RunConfig& config = context.settings.values;
  // Two checkpoints of a model that is trained whole: weights, masters and two states of 4 bytes.
  const auto checkpoints = static_cast<std::uint64_t>(layout::count_parameters(config.model)) * 2 * (config.lora.enabled ? 1 : 14);
  std::vector<Finding> findings = {judge(look_at_disk("runs (--output)", config.output), 64 * mib, std::max(gib, checkpoints))};
  const fs::path cache = base::cache_folder();
  if (!cache.empty()) findings.push_back(judge(look_at_disk("cache (LOCKSTEP_CACHE)", cache), 16 * mib, gib / 4));
  findings.push_back(judge(look_at_disk("temporary files (TMPDIR)", fs::temp_directory_path()), 16 * mib, gib / 4));
  return {std::move(findings)};
}

Outcome check_clock(Context& context) { return {{judge(look_at_clock(), machines_of(context))}}; }

}  // namespace lockstep::check
