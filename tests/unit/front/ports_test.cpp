// Ports: free, busy, held by another job.
#include "front/launch/ports.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/error.h"

namespace lockstep::launch {
namespace {

// Listens on a port of the system's choice.
class Server {
 public:
  Server() {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Server() { ::close(socket_); }
  int port() const { return port_; }

 private:
  int socket_;
  int port_;
};

int free_port() {
  const Server server;
  return server.port();
}

TEST(Ports, ABusyPortIsSeenAndItsHolderNamed) {
  int port = 0;
  {
    const Server server;
    port = server.port();
    EXPECT_FALSE(PortLease::take(port));
    const std::string holder = who_listens(port);
    EXPECT_NE(holder.find("pid " + std::to_string(::getpid())), std::string::npos) << holder;
    EXPECT_NE(holder.find("plain_tests"), std::string::npos) << holder;
    std::string note;
    try {
      choose_port(port, note);
      FAIL() << "a busy port was taken";
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::machine);
      EXPECT_NE(std::string(error.what()).find(holder), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(PortLease::take(port));
  EXPECT_EQ(who_listens(port), "");
}

TEST(Ports, OneJobAPort) {
  const int free = free_port();
  auto lease = PortLease::take(free);
  ASSERT_TRUE(lease);
  EXPECT_FALSE(PortLease::take(free));
  lease.reset();
  EXPECT_TRUE(PortLease::take(free));
}

TEST(Ports, TheUsualOneOrTheNextFreeOneAndThatIsSaid) {
  std::string note;
  const PortLease first = choose_port(0, note);
  EXPECT_GE(first.port(), first_port);
  EXPECT_EQ(note.empty(), first.port() == first_port) << note;
  std::string second_note;
  const PortLease second = choose_port(0, second_note);
  EXPECT_GT(second.port(), first.port());
  EXPECT_NE(second_note.find(std::to_string(second.port())), std::string::npos) << second_note;
}

}  // namespace
}  // namespace lockstep::launch
