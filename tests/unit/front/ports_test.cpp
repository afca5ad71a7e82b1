// Ports: free, busy, held by another job.
#include "front/launch/ports.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "support/temporary_folder.h"

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
    EXPECT_FALSE(port_is_free(port));
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
  EXPECT_TRUE(port_is_free(port));
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

// Sets a variable for one test; null unsets it.
class Variable {
 public:
  Variable(const char* name, const char* value)
      : name_(name), before_(std::getenv(name) ? std::optional<std::string>(std::getenv(name)) : std::nullopt) {
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// Whatever another user has laid there: it is not followed, not waited for, and takes no port.
TEST(Ports, LocksOfOtherUsersAndLinksTakeNoPort) {
  const support::TemporaryFolder folder;
  const Variable temporary("TMPDIR", folder.path().c_str());
  const Variable runtime("XDG_RUNTIME_DIR", nullptr);
  const int port = free_port();
  const auto everyones = folder.path() / ("lockstep-port-" + std::to_string(port));
  const auto theirs = base::FileLock::take(everyones);
  ASSERT_TRUE(theirs);
  EXPECT_TRUE(PortLease::take(port)) << "a lock that anybody can hold";

  const auto own = folder.path() / ("lockstep-" + std::to_string(::geteuid()));
  struct stat status {};
  ASSERT_EQ(::lstat(own.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  const auto target = folder.path() / "precious";
  std::filesystem::remove(own / ("port-" + std::to_string(port)));
  std::filesystem::create_symlink(target, own / ("port-" + std::to_string(port)));
  EXPECT_TRUE(PortLease::take(port)) << "a link instead of a lock";
  EXPECT_FALSE(std::filesystem::exists(target));

  std::filesystem::remove_all(own);
  std::filesystem::create_directory(folder.path() / "elsewhere");
  std::filesystem::create_symlink(folder.path() / "elsewhere", own);
  EXPECT_TRUE(PortLease::take(port)) << "a link instead of the folder";
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "elsewhere"));

  std::filesystem::remove(own);
  std::filesystem::create_directory(own);
  if (::chown(own.c_str(), 65534, 65534) != 0) return;  // only root can play another user
  EXPECT_TRUE(PortLease::take(port)) << "another user's folder";
  EXPECT_TRUE(std::filesystem::is_empty(own));
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
