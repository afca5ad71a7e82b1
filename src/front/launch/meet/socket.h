// TCP sockets: owned, with names resolved at once and no call that waits longer than it was told to.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/file/descriptor.h"

namespace lockstep::launch::meet {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  int file() const { return file_.number(); }
  bool open() const { return file_.open(); }

 private:
  base::Descriptor file_;
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  std::string host() const;  // numeric: "10.0.0.1", "fe80::1"
  int port() const;
  std::string text() const;  // "10.0.0.1:29500"
  bool is_loopback() const;
  bool is_of_this_machine() const;  // one of its interfaces has it
};

// UserError(machine) that names host and `setting` if the name does not resolve.
std::vector<Address> resolve(const std::string& host, int port, const std::string& setting);
Address loopback(int port);
Address every_interface(int port);

// Not open if it fails; `error` then says why.
Socket connect_within(const Address& address, double seconds, std::string& error);
// Listening, not blocking; not open with errno set if the address cannot be had. Port 0: one of the system's choice.
Socket listen_at(const Address& address, int backlog);
Socket accept_from(const Socket& listener);  // not open if nobody is there

Address local_address(const Socket& socket);
Address peer_address(const Socket& socket);

// "eth0", the interface with this numeric address; empty if none has it.
std::string interface_with(const std::string& host);
std::string host_name();

}  // namespace lockstep::launch::meet
