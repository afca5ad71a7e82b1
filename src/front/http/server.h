// A small HTTP/1.1 server: one loop for all connections, a few threads for the answers. Open streams cost no thread. Read this header
// first.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/file/descriptor.h"
#include "base/mutex.h"
#include "front/http/connection.h"
#include "front/http/message.h"
#include "front/http/stream.h"

namespace lockstep::http {

// What getaddrinfo() did not like about a host.
const std::error_category& host_category();

// Sizes and times are bounded, so that a client that is slow, silent or hostile costs a connection for seconds and nothing else. Where all
// connections are taken, the one that has waited longest for its own request gives way.
class Server {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;  // 0: any
    Limits limits = {};
    std::size_t connections = 768, streams = 256;
    double request_s = 10;  // from a request's first byte to its last
    double idle_s = 60;     // between requests
    double write_s = 20;    // without a byte taken
    int threads = 6;        // 0: the loop answers by itself
  };
  // Called by these threads at once. What it throws becomes an answer: UserError 400 with its text, all else 500.
  using Handler = std::function<Response(const Request&)>;

  // Listens from here on. std::system_error where it cannot, of host_category() where there is no such address.
  Server(Options options, Handler handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  // Serves until `ends` says so, which is asked a few times a second, and at once after wake() of any thread.
  void run(const std::function<bool()>& ends);
  void wake() const { waker_->wake(); }

 private:
  struct Work {
    std::uint64_t connection;
    Request request;
  };
  struct Done {
    std::uint64_t connection;
    Response response;
  };
  void listen_on();
  void answer_requests();
  void hand_over(std::uint64_t connection, Request request);
  void put_answer(std::uint64_t connection, Response response);
  Response answer(const Request& request) const;

  void accept_all();
  bool make_room();
  void handle_event(std::uint64_t id, std::uint32_t events);
  void advance(Connection& connection);
  void take_answers();
  void begin_answer(Connection& connection, Response response);
  void drain_streams();
  void end_late_ones();
  void watch(Connection& connection);
  void drop(std::uint64_t id);

  Options options_;
  Handler handler_;
  int port_ = 0;
  base::Descriptor listener_, epoll_;
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  std::uint64_t next_id_ = 2;  // 0 and 1 are the listener and the waker
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;

  base::Mutex mutex_;
  base::Condition has_work_;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::deque<Work> work_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Done> done_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::http
