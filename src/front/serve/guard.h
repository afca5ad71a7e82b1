// Who may talk to the page: this machine's own browser, or whoever knows the token; never another site through someone's browser.
#pragma once

#include <optional>
#include <string>

#include "front/http/message.h"

namespace lockstep::serve {

// Any thread.
class Guard {
 public:
  // `host`: what the server listens on. `token` empty: only loopback is served, where whoever asks is a user of this machine.
  Guard(std::string host, std::string token);

  // The answer to a request that is turned away, or that brings the token by its address and goes on with a cookie; nothing where it may
  // pass.
  std::optional<http::Response> stops(const http::Request& request) const;

  static bool is_loopback(const std::string& host);

 private:
  bool is_own_name(const std::string& host_header) const;
  bool knows_token(const http::Request& request) const;

  std::string host_, token_, machine_;
};

}  // namespace lockstep::serve
