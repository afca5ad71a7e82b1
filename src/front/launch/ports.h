// The port that ranks meet on: one that is free, and whose it is if the asked one is not.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "front/launch/meet/socket.h"

namespace lockstep::launch {

constexpr int first_port = 29500;

// "pid 4711 (python3 train.py)", or as much of it as may be read; empty if nobody listens there.
std::string who_listens(int port);

// A port of 127.0.0.1 that this job listens on from here on: nobody else can take it, and rank 0 takes the socket over.
class PortLease {
 public:
  // Nothing if someone listens there. 0: any that is free.
  static std::optional<PortLease> take(int port);
  int port() const { return port_; }
  int socket() const { return socket_.file(); }

 private:
  PortLease(int port, meet::Socket socket) : port_(port), socket_(std::move(socket)) {}
  int port_;
  meet::Socket socket_;
};

// asked > 0: that port or a UserError that names its holder. 0: 29500 or the next free one; `note` says so when it is another.
PortLease choose_port(int asked, std::string& note);

}  // namespace lockstep::launch
