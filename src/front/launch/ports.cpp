// Tries ports by binding, and reads /proc to name who listens.
#include "front/launch/ports.h"

#include <dirent.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// Free means: a server with SO_REUSEADDR, as the store of rank 0 is one, can listen on all addresses.
bool can_bind(int family, int port) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return true;  // a machine without that family
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  if (family == AF_INET6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const auto* address = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  const bool bound = ::bind(socket, address, family == AF_INET6 ? sizeof six : sizeof four) == 0;
  const int error = errno;
  const bool free = bound ? ::listen(socket, 1) == 0 : error != EADDRINUSE && error != EACCES;
  ::close(socket);
  return free;
}

struct Listener {
  std::string inode;
  std::string uid;
};

// Lines of /proc/net/tcp: number, local address:port, remote, state (0A listens), queues, timer, retransmits, uid, timeout, inode.
std::vector<Listener> listeners(int port) {
  std::vector<Listener> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
      const std::size_t colon = local.rfind(':');
      if (state != "0A" || colon == std::string::npos) continue;
      if (std::stoi(local.substr(colon + 1), nullptr, 16) == port) found.push_back({inode, uid});
    }
  }
  return found;
}

std::string command_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/cmdline", std::ios::binary);
  std::string command((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (char& c : command) c = c == '\0' ? ' ' : c;
  command = base::trim(command);
  return command.size() > 120 ? command.substr(0, 117) + "..." : command;
}

// This user's own: nobody else can hold a lock there, or lay a link.
std::optional<fs::path> lock_folder() {
  std::error_code error;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') {
    const fs::path folder = fs::path(runtime) / "lockstep";
    if (base::make_private_folder(folder)) return folder;
  }
  const fs::path folder = fs::temp_directory_path(error) / fmt::format("lockstep-{}", ::geteuid());
  return !error && base::make_private_folder(folder) ? std::optional(folder) : std::nullopt;
}

}  // namespace

bool port_is_free(int port) { return can_bind(AF_INET, port) && can_bind(AF_INET6, port); }

std::string who_listens(int port) {
  const std::vector<Listener> found = listeners(port);
  if (found.empty()) return {};
  std::set<std::string> sockets;
  for (const auto& listener : found) sockets.insert("socket:[" + listener.inode + "]");
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code unreadable;
    for (const auto& descriptor : fs::directory_iterator(process.path() / "fd", unreadable)) {
      const fs::path target = fs::read_symlink(descriptor.path(), unreadable);
      if (sockets.contains(target.string())) return fmt::format("pid {} ({})", pid, command_of(pid));
    }
  }
  return fmt::format("a process of user id {} that may not be looked at from here", found.front().uid);
}

std::optional<PortLease> PortLease::take(int port) {
  std::optional<base::FileLock> lock;
  // Where no lock file can be made the port itself still decides.
  if (const auto folder = lock_folder()) {
    base::FileLock::Refusal why;
    lock = base::FileLock::take(*folder / fmt::format("port-{}", port), &why);
    if (why == base::FileLock::Refusal::held) return std::nullopt;
  }
  if (!port_is_free(port)) return std::nullopt;
  return PortLease(port, std::move(lock));
}

PortLease choose_port(int asked, std::string& note) {
  if (asked > 0) {
    if (auto lease = PortLease::take(asked)) return std::move(*lease);
    const std::string holder = who_listens(asked);
    throw base::machine_error("launch", "port {} is in use by {}. Choose another with --port, or leave it out: then a free one is taken.",
                              asked, holder.empty() ? "another lockstep job that is starting" : holder);
  }
  constexpr int tries = 200;
  for (int port = first_port; port < first_port + tries; ++port) {
    auto lease = PortLease::take(port);
    if (!lease) continue;
    if (port != first_port) note = fmt::format("port {} is in use, port {} is taken instead.", first_port, port);
    return std::move(*lease);
  }
  throw base::machine_error("launch", "all ports from {} to {} are in use. Choose one with --port.", first_port, first_port + tries - 1);
}

}  // namespace lockstep::launch
