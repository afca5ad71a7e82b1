// A run in Prometheus' text format, and the small server that Prometheus asks for it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <nlohmann/json_fwd.hpp>

#include "front/http/server.h"
#include "front/monitor/readings.h"

namespace lockstep::monitor {

// last_step: a step's line of metrics.jsonl, null before the first. Every sample has the label run="NAME".
std::string prometheus_text(const std::string& run, std::int64_t total_steps, const nlohmann::json& last_step, const Reading& reading);

// Answers GET /metrics on 127.0.0.1, on a thread of its own. A client that does not ask within two seconds is left.
class Endpoint {
 public:
  // text: called by that thread. UserError(machine) where the port is taken. 0: any port.
  Endpoint(int port, std::function<std::string()> text);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  int port() const { return server_->port(); }

 private:
  std::unique_ptr<http::Server> server_;
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

}  // namespace lockstep::monitor
