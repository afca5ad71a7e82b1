// One handler, and the thread that serves it.
#include <system_error>

#include "base/error.h"
#include "base/quiet_thread.h"
#include "front/monitor/prometheus.h"

namespace lockstep::monitor {
namespace {

constexpr double patience_s = 2;

http::Response answer(const http::Request& request, const std::function<std::string()>& text) {
  if (request.path == "/metrics" && (request.method == "GET" || request.method == "HEAD"))
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = text(), .keep_alive = false};
  return {.status = 404, .type = "text/plain", .body = "Metrics are at /metrics.\n", .keep_alive = false};
}

std::unique_ptr<http::Server> listening(int port, std::function<std::string()> text) {
  const http::Server::Options options{.port = port,
                                      .limits = {.head_bytes = 8 << 10, .body_bytes = 0},
                                      .connections = 16,
                                      .request_s = patience_s,
                                      .idle_s = patience_s,
                                      .write_s = patience_s,
                                      .threads = 0};
  try {
    return std::make_unique<http::Server>(options,
                                          [text = std::move(text)](const http::Request& request) { return answer(request, text); });
  } catch (const std::system_error& error) {
    throw base::machine_error("monitor",
                              "port {} of 127.0.0.1 cannot be used for Prometheus: {}. Choose another monitor.prometheus_port (or "
                              "LOCKSTEP_PROMETHEUS_PORT), or 0 for none.",
                              port, error.code().message());
  }
}

}  // namespace

Endpoint::Endpoint(int port, std::function<std::string()> text) : server_(listening(port, std::move(text))) {
  thread_ = base::quiet_thread([this] { server_->run([this] { return closing_.load(); }); });
}

Endpoint::~Endpoint() {
  closing_ = true;
  server_->wake();
  thread_.join();
}

}  // namespace lockstep::monitor
