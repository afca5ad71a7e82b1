// Takes ports by listening on them, and reads /proc to name who listens already.
#include "front/launch/ports.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

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
  std::string command = base::process_file(static_cast<pid_t>(base::parse_integer(pid).value_or(0)), "cmdline");
  for (char& c : command) c = c == '\0' ? ' ' : c;
  command = base::trim(command);
  return command.size() > 120 ? command.substr(0, 117) + "..." : command;
}

}  // namespace

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
  meet::Socket socket = meet::listen_at(meet::loopback(port), 1024);
  if (!socket.open()) return std::nullopt;
  const int taken = meet::local_address(socket).port();
  return PortLease(taken, std::move(socket));
}

PortLease choose_port(int asked, std::string& note) {
  if (asked > 0) {
    if (auto lease = PortLease::take(asked)) return std::move(*lease);
    const std::string holder = who_listens(asked);
    throw base::machine_error("launch", "port {} is in use by {}. Choose another with --port, or leave it out: then a free one is taken.",
                              asked, holder.empty() ? "another program" : holder);
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
