// Thin over the system's calls; everything is close-on-exec and never blocks.
#include "front/launch/meet/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace lockstep::launch::meet {
namespace {

Address address_of(const sockaddr* bytes, socklen_t size) {
  Address address;
  std::memcpy(&address.bytes, bytes, size);
  address.size = size;
  return address;
}

const sockaddr* plain(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.bytes); }

// Small frames must not wait for company.
void send_at_once(int file) {
  const int on = 1;
  ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Calls visit(name, address) for every interface until it says true.
template <typename Visit>
bool any_interface(const Visit& visit) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (visit(std::string(entry->ifa_name), address_of(entry->ifa_addr, size))) return true;
  }
  return false;
}

}  // namespace

std::string Address::host() const {
  char text[NI_MAXHOST] = "?";
  ::getnameinfo(plain(*this), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  constexpr std::string_view mapped = "::ffff:";  // an IPv4 peer of a socket for both
  return std::string_view(text).starts_with(mapped) ? std::string(text + mapped.size()) : std::string(text);
}

int Address::port() const {
  if (bytes.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&bytes)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_port);
}

std::string Address::text() const {
  const std::string name = host();
  return name.find(':') == std::string::npos ? fmt::format("{}:{}", name, port()) : fmt::format("[{}]:{}", name, port());
}

bool Address::is_loopback() const {
  const std::string name = host();
  return name.starts_with("127.") || name == "::1";
}

bool Address::is_of_this_machine() const { return !interface_with(host()).empty(); }

std::vector<Address> resolve(const std::string& host, int port, const std::string& setting) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failure != 0) {
    throw base::machine_error("launch",
                              "the name '{}' ({}) does not resolve: {}. It must be a name or an address of machine 0 that this machine "
                              "knows: `getent hosts {}` shows what it knows.",
                              host, setting, failure == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(failure), host);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next)
    addresses.push_back(address_of(entry->ai_addr, entry->ai_addrlen));
  return addresses;
}

Address loopback(int port) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address_of(reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

Address every_interface(int port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  six.sin6_addr = in6addr_any;
  return address_of(reinterpret_cast<const sockaddr*>(&six), sizeof six);
}

Socket connect_within(const Address& address, double seconds, std::string& error) {
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int code = errno;
  if (socket.open()) {
    code = ::connect(socket.file(), plain(address), address.size) == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
      pollfd waits{socket.file(), POLLOUT, 0};
      code = ETIMEDOUT;
      if (::poll(&waits, 1, static_cast<int>(seconds * 1000)) == 1) {
        socklen_t size = sizeof code;
        ::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &code, &size);
      }
    }
  }
  if (code != 0) {
    error = std::strerror(code);
    return {};
  }
  send_at_once(socket.file());
  return socket;
}

Socket listen_at(const Address& address, int backlog) {
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open() && address.bytes.ss_family == AF_INET6) {  // a machine without IPv6
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<std::uint16_t>(address.port()));
    return listen_at(address_of(reinterpret_cast<const sockaddr*>(&four), sizeof four), backlog);
  }
  const int on = 1, off = 0;
  ::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.bytes.ss_family == AF_INET6) ::setsockopt(socket.file(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.file(), plain(address), address.size) != 0 || ::listen(socket.file(), backlog) != 0) return {};
  return socket;
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.open()) send_at_once(socket.file());
  return socket;
}

Address local_address(const Socket& socket) {
  Address address;
  address.size = sizeof address.bytes;
  ::getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address.bytes), &address.size);
  return address;
}

Address peer_address(const Socket& socket) {
  Address address;
  address.size = sizeof address.bytes;
  ::getpeername(socket.file(), reinterpret_cast<sockaddr*>(&address.bytes), &address.size);
  return address;
}

std::string interface_with(const std::string& host) {
  std::string found;
  any_interface([&](const std::string& name, const Address& address) {
    if (address.host() == host) found = name;
    return !found.empty();
  });
  return found;
}

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace lockstep::launch::meet
