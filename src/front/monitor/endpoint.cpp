// As much of HTTP as Prometheus needs.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/quiet_thread.h"
#include "front/monitor/prometheus.h"

namespace lockstep::monitor {
namespace {

constexpr double patience_s = 2;
constexpr std::size_t most_request_bytes = 8192;

// Waits for the socket until the deadline; false where it passed.
bool ready(int socket, short events, std::int64_t begun_ns) {
  pollfd wait{.fd = socket, .events = events, .revents = 0};
  const double left = patience_s - base::seconds_since(begun_ns);
  return left > 0 && ::poll(&wait, 1, static_cast<int>(left * 1000) + 1) > 0;
}

std::string response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status, type, body.size(),
                     body);
}

}  // namespace

Endpoint::Endpoint(int port, std::function<std::string()> text)
    : text_(std::move(text)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), closing_(::eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  ::setsockopt(listener_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener_.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener_.number(), 16) != 0)
    throw base::machine_error("monitor",
                              "LOCKSTEP_PROMETHEUS_PORT={}: this port of 127.0.0.1 cannot be used: {}. Choose another one, or 0 for none.",
                              port, std::strerror(errno));
  socklen_t size = sizeof address;
  ::getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = base::quiet_thread([this] { serve(); });
}

Endpoint::~Endpoint() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(closing_.number(), &one, sizeof one);
  thread_.join();
}

void Endpoint::serve() {
  for (;;) {
    pollfd waits[] = {{.fd = listener_.number(), .events = POLLIN, .revents = 0},
                      {.fd = closing_.number(), .events = POLLIN, .revents = 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) return;
    if (waits[0].revents == 0) continue;
    const base::Descriptor client(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.open()) answer(client.number());
  }
}

void Endpoint::answer(int client) const {
  const std::int64_t begun = base::now_ns();
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos) {
    char buffer[2048];
    if (request.size() > most_request_bytes || !ready(client, POLLIN, begun)) return;
    const ssize_t got = ::recv(client, buffer, sizeof buffer, 0);
    if (got <= 0) return;
    request.append(buffer, static_cast<std::size_t>(got));
  }
  const bool asks = request.starts_with("GET /metrics ") || request.starts_with("GET /metrics?");
  const std::string whole = asks ? response("200 OK", "text/plain; version=0.0.4; charset=utf-8", text_())
                                 : response("404 Not Found", "text/plain", "Metrics are at /metrics.\n");
  for (std::size_t done = 0; done < whole.size();) {
    const ssize_t sent = ready(client, POLLOUT, begun) ? ::send(client, whole.data() + done, whole.size() - done, MSG_NOSIGNAL) : -1;
    if (sent <= 0) return;
    done += static_cast<std::size_t>(sent);
  }
}

}  // namespace lockstep::monitor
