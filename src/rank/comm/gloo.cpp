// Makes the Gloo backend and the store ranks meet at.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/file/descriptor.h"
#include "base/text.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {
namespace {

std::chrono::milliseconds whole_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// What LibTorch says, without its frames.
std::string_view first_line(const std::exception& error) {
  const std::string_view text = error.what();
  return text.substr(0, text.find('\n'));
}

// The local address that packets to machine 0 leave from: what the own name resolves to may be one that nobody else reaches.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  std::string found = host;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return found;
  const base::Descriptor file(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[NI_MAXHOST];
  // Connecting a datagram socket sends nothing; it only asks for the route.
  if (::connect(file.number(), list->ai_addr, list->ai_addrlen) == 0 &&
      ::getsockname(file.number(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
    found = text;
  }
  ::freeaddrinfo(list);
  return found;
}

bool set_to_true(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && (std::string_view(value) == "True" || std::string_view(value) == "1" || std::string_view(value) == "true");
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Which run, and which start of it: a store may outlive a start (torchrun's does), and a rank may come from another one.
std::string key_prefix() {
  const bool elastic = std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
  const std::string run = elastic ? variable("TORCHELASTIC_RUN_ID") : variable("LOCKSTEP_RUN_KEY");
  const std::string restart = variable(elastic ? "TORCHELASTIC_RESTART_COUNT" : "LOCKSTEP_RESTART");
  return fmt::format("lockstep/{}/{}", run, restart);
}

// The launcher's, which listens already; or one of our own. Nothing: the store may be reached from everywhere, as torchrun wants it.
std::optional<int> listening_socket(const Place& place) {
  if (const auto given = base::parse_integer(variable("LOCKSTEP_STORE_SOCKET"))) return static_cast<int>(*given);
  if (!place.master_addr.starts_with("127.") && place.master_addr != "localhost") return std::nullopt;
  base::Descriptor file(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(file.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(place.master_port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(file.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::listen(file.number(), 1024) == 0)
    return file.release();
  const std::string reason = std::strerror(errno);
  throw base::machine_error("comm", "rank {} cannot open the meeting point at 127.0.0.1:{}: {}.", place.rank, place.master_port, reason);
}

// The address by which the other machines reach this one.
std::shared_ptr<::gloo::transport::Device> device_for(const Place& place) {
  using Gloo = c10d::ProcessGroupGloo;
  if (place.local_world_size == place.world_size) return Gloo::createDeviceForHostname("127.0.0.1");
  if (const std::string interface = variable("GLOO_SOCKET_IFNAME"); !interface.empty()) return Gloo::createDeviceForInterface(interface);
  if (const std::string host = variable("LOCKSTEP_BIND_HOST"); !host.empty()) return Gloo::createDeviceForHostname(host);
  return Gloo::createDeviceForHostname(address_towards(place.master_addr, place.master_port));
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const Place& place, double timeout_s) {
  const bool agent_serves = set_to_true("TORCHELASTIC_USE_AGENT_STORE");
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.master_port);
  options.isServer = !agent_serves && place.rank == 0;
  options.waitWorkers = false;
  options.timeout = whole_milliseconds(timeout_s);
  if (options.isServer) options.masterListenFd = listening_socket(place);
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(place.master_addr, options);
    auto keys = c10::make_intrusive<c10d::PrefixStore>(key_prefix(), store);
    if (const std::string identity = variable("LOCKSTEP_IDENTITY"); !identity.empty()) verify_one_run(*keys, place, identity);
    return keys;
  } catch (const base::UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw base::machine_error(
        "comm", "rank {} cannot {} the meeting point at {}:{}: {}. Check that rank 0 runs and that the port is free and reachable.",
        place.rank, options.isServer ? "open" : "reach", place.master_addr, place.master_port, first_line(error));
  }
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Place& place, Seat seat, double timeout_s) {
  auto options = c10d::ProcessGroupGloo::Options::create(whole_milliseconds(timeout_s));
  try {
    options->devices.push_back(device_for(place));
    options->threads = 2;
    return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), seat.rank, seat.size,
                                                       options);
  } catch (const base::UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw base::run_error(
        "comm",
        "rank {} could not connect to all other ranks by gloo: {}. Another rank may have failed first. Between machines, all "
        "ports must be open; GLOO_SOCKET_IFNAME names the network interface to use.",
        place.rank, first_line(error));
  }
}

}  // namespace lockstep::comm
