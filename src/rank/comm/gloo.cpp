// Makes the Gloo backend and the store ranks meet at.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>

#include "base/error.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

std::chrono::milliseconds milliseconds(double seconds) { return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

bool set_to_true(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && (std::string_view(value) == "True" || std::string_view(value) == "1" || std::string_view(value) == "true");
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const Place& place, double timeout_s) {
  const bool agent_serves = set_to_true("TORCHELASTIC_USE_AGENT_STORE");
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.master_port);
  options.isServer = !agent_serves && place.rank == 0;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(place.master_addr, options);
    // torchrun keeps its store over restarts; the attempt's number keeps old keys apart.
    const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return c10::make_intrusive<c10d::PrefixStore>(fmt::format("lockstep/{}", attempt ? attempt : "0"), store);
  } catch (const std::exception& error) {
    throw base::machine_error(
        "comm", "rank {} cannot {} the meeting point at {}:{}: {}. Check that rank 0 runs and that the port is free and reachable.",
        place.rank, options.isServer ? "open" : "reach", place.master_addr, place.master_port,
        std::string_view(error.what()).substr(0, std::string_view(error.what()).find('\n')));
  }
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Place& place, double timeout_s) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout_s));
  if (place.local_world_size == place.world_size) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  } else if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } else {
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  }
  options->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), place.rank, place.world_size,
                                                     options);
}

}  // namespace lockstep::comm
