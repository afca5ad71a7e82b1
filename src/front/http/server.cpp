// The loop (epoll), and the threads that answer.
#include "front/http/server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/quiet_thread.h"

namespace lockstep::http {
namespace {

constexpr std::uint64_t listener_id = 0, waker_id = 1;
constexpr int look_every_ms = 200;
constexpr double leave_s = 2;

void add(int epoll, int descriptor, std::uint64_t id, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = id}};
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port)
                                       : ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

class HostCategory : public std::error_category {
 public:
  const char* name() const noexcept override { return "host"; }
  std::string message(int error) const override { return ::gai_strerror(error); }
};

}  // namespace

const std::error_category& host_category() {
  static const HostCategory category;
  return category;
}

Server::Server(Options options, Handler handler) : options_(std::move(options)), handler_(std::move(handler)) {
  listen_on();
  epoll_ = base::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.open()) throw base::machine_error("http", "cannot make an epoll descriptor: {}.", std::strerror(errno));
  add(epoll_.number(), listener_.number(), listener_id, EPOLLIN);
  add(epoll_.number(), waker_->descriptor(), waker_id, EPOLLIN);
  for (int i = 0; i < options_.threads; ++i) threads_.push_back(base::quiet_thread([this] { answer_requests(); }));
}

Server::~Server() {
  {
    base::Lock lock(mutex_);
    closing_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (auto& [id, connection] : connections_) {
    if (connection->stream()) connection->stream()->close();
  }
}

void Server::listen_on() {
  const addrinfo hints{.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  Addresses found;
  const std::string port = std::to_string(options_.port);
  if (const int error = ::getaddrinfo(options_.host.c_str(), port.c_str(), &hints, &found.first); error != 0)
    throw std::system_error(error, host_category());
  base::Descriptor socket(::socket(found.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket.open() || ::bind(socket.number(), found.first->ai_addr, found.first->ai_addrlen) != 0 || ::listen(socket.number(), 512) != 0)
    throw std::system_error(errno, std::generic_category());
  listener_ = std::move(socket);
  port_ = port_of(listener_.number());
}

void Server::answer_requests() {
  for (;;) {
    base::Lock lock(mutex_);
    has_work_.wait(lock, [this]() LOCKSTEP_REQUIRES(mutex_) { return closing_ || !work_.empty(); });
    if (closing_) return;
    const Work work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    put_answer(work.connection, answer(work.request));
  }
}

void Server::hand_over(std::uint64_t connection, Request request) {
  if (options_.threads == 0) return put_answer(connection, answer(request));
  base::Lock lock(mutex_);
  work_.push_back({connection, std::move(request)});
  has_work_.notify_one();
}

void Server::put_answer(std::uint64_t connection, Response response) {
  base::Lock lock(mutex_);
  done_.push_back({connection, std::move(response)});
  waker_->wake();
}

Response Server::answer(const Request& request) const {
  try {
    return handler_(request);
  } catch (const base::UserError& error) {
    return plain_answer(400, error.what());
  } catch (const std::exception& error) {
    return plain_answer(500, error.what());
  }
}

void Server::run(const std::function<bool()>& ends) {
  epoll_event events[256];
  while (!ends()) {
    const int count = ::epoll_wait(epoll_.number(), events, 256, look_every_ms);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t id = events[i].data.u64;
      if (id == listener_id)
        accept_all();
      else if (id == waker_id)
        waker_->clear();
      else
        handle_event(id, events[i].events);
    }
    take_answers();
    drain_streams();
    end_late_ones();
  }
}

void Server::accept_all() {
  for (;;) {
    if (connections_.size() >= options_.connections && !make_room()) return;
    base::Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) {
      if (errno == EMFILE || errno == ENFILE) make_room();
      return;
    }
    const int on = 1;
    ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const std::uint64_t id = next_id_++;
    add(epoll_.number(), socket.number(), id, EPOLLIN);
    connections_.emplace(id, std::make_unique<Connection>(id, std::move(socket)));
  }
}

// Whoever has let us wait longest for a request goes.
bool Server::make_room() {
  const Connection* oldest = nullptr;
  for (const auto& [id, connection] : connections_) {
    if (connection->state() != Connection::State::reading) continue;
    if (oldest == nullptr || connection->since_ns() < oldest->since_ns()) oldest = connection.get();
  }
  if (oldest == nullptr) return false;
  drop(oldest->id());
  return true;
}

void Server::handle_event(std::uint64_t id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  const bool lost = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (lost || ((events & EPOLLIN) != 0 && !connection.receive(options_.limits)) || ((events & EPOLLOUT) != 0 && !connection.send()))
    return drop(id);
  advance(connection);
}

// As far as what came allows.
void Server::advance(Connection& connection) {
  if (auto next = connection.next_request(options_.limits)) {
    if (auto* refusal = std::get_if<Refusal>(&*next)) return begin_answer(connection, plain_answer(refusal->status, refusal->reason));
    hand_over(connection.id(), std::move(std::get<Request>(*next)));
  }
  if (connection.is_cut_off()) return drop(connection.id());
  watch(connection);
}

void Server::take_answers() {
  std::vector<Done> done;
  {
    base::Lock lock(mutex_);
    done.swap(done_);
  }
  for (Done& one : done) {
    const auto found = connections_.find(one.connection);
    if (found != connections_.end())
      begin_answer(*found->second, std::move(one.response));
    else if (one.response.stream)
      one.response.stream->close();
  }
}

void Server::begin_answer(Connection& connection, Response response) {
  if (response.stream) {
    std::size_t open = 0;
    for (const auto& [id, other] : connections_) open += other->state() == Connection::State::streaming ? 1 : 0;
    if (open >= options_.streams) {
      response.stream->close();
      response = plain_answer(503, "too many pages are open at once; close one");
    }
  }
  connection.begin_answer(response);
  if (response.stream) response.stream->attach(waker_);
  if (!connection.send()) return drop(connection.id());
  advance(connection);  // the next request may be there already
}

void Server::drain_streams() {
  std::vector<std::uint64_t> gone;
  for (auto& [id, connection] : connections_) {
    if (connection->state() != Connection::State::streaming) continue;
    Stream::Taken taken = connection->stream()->take();
    if (taken.bytes.empty() && !taken.ends) continue;
    connection->append(std::move(taken.bytes));
    if (taken.ends) connection->end_after_this();
    if (!connection->send())
      gone.push_back(id);
    else
      watch(*connection);
  }
  for (const std::uint64_t id : gone) drop(id);
}

void Server::end_late_ones() {
  std::vector<std::uint64_t> late;
  for (const auto& [id, connection] : connections_) {
    const double seconds = base::seconds_since(connection->since_ns());
    switch (connection->state()) {
      case Connection::State::reading:
        if (seconds > (connection->has_begun() ? options_.request_s : options_.idle_s)) late.push_back(id);
        break;
      case Connection::State::answering: break;  // our own time
      case Connection::State::writing:
      case Connection::State::streaming:
        if (connection->wants_to_write() && seconds > options_.write_s) late.push_back(id);
        break;
      case Connection::State::leaving:
        if (seconds > leave_s) late.push_back(id);
        break;
    }
  }
  for (const std::uint64_t id : late) drop(id);
}

// While an answer is made, nothing more is read from its client.
void Server::watch(Connection& connection) {
  const Connection::State state = connection.state();
  std::uint32_t events = 0;
  if (state != Connection::State::answering && state != Connection::State::writing) events |= EPOLLIN;
  if (connection.wants_to_write()) events |= EPOLLOUT;
  epoll_event event{.events = events, .data = {.u64 = connection.id()}};
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, connection.socket(), &event);
}

void Server::drop(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  if (found->second->stream()) found->second->stream()->close();
  connections_.erase(found);
}

}  // namespace lockstep::http
