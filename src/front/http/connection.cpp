// Reading and writing without ever waiting.
#include "front/http/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace lockstep::http {

Connection::Connection(std::uint64_t id, base::Descriptor socket) : id_(id), socket_(std::move(socket)), since_ns_(base::now_ns()) {}

bool Connection::receive(const Limits& limits) {
  char bytes[1 << 14];
  const std::size_t most = limits.head_bytes + limits.body_bytes;
  for (;;) {
    const ssize_t got = ::recv(socket(), bytes, sizeof bytes, 0);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0) {
      if (state_ != State::reading || in_.empty()) return false;
      return client_is_done_ = ends_ = true;  // what it sent may be a whole request
    }
    if (state_ == State::streaming || state_ == State::leaving) return true;  // nobody listens to it
    if (in_.empty()) since_ns_ = base::now_ns();
    if (in_.size() + static_cast<std::size_t>(got) > most) return false;
    in_.append(bytes, static_cast<std::size_t>(got));
    if (in_.size() > sizeof bytes) return true;  // others have their turn
  }
}

std::optional<std::variant<Request, Refusal>> Connection::next_request(const Limits& limits) {
  if (state_ != State::reading) return std::nullopt;
  if (!request_) {
    const auto end = head_end(std::string_view(in_).substr(0, limits.head_bytes));
    if (!end) {
      if (in_.size() < limits.head_bytes) return std::nullopt;
      ends_ = true;
      return Refusal{431, fmt::format("a request's head has {} KiB at most", limits.head_bytes >> 10)};
    }
    auto head = parse_head(std::string_view(in_).substr(0, *end), limits);
    if (auto* refusal = std::get_if<Refusal>(&head)) {
      ends_ = true;
      return *refusal;
    }
    request_ = std::move(std::get<Request>(head));
    in_.erase(0, *end);
  }
  if (in_.size() < request_->body_bytes) return std::nullopt;
  request_->body = in_.substr(0, request_->body_bytes);
  in_.erase(0, request_->body_bytes);
  state_ = State::answering;
  since_ns_ = base::now_ns();
  return *request_;
}

void Connection::begin_answer(const Response& response) {
  const bool keep = request_ && request_->keep_alive && response.keep_alive && !ends_;
  const bool with_body = !request_ || request_->method != "HEAD";
  out_ = to_bytes(response, keep, with_body);
  sent_ = 0;
  since_ns_ = base::now_ns();
  stream_ = response.stream;
  state_ = stream_ ? State::streaming : State::writing;
  ends_ = ends_ || (!keep && !stream_);
  request_.reset();
}

void Connection::append(std::string bytes) {
  if (!wants_to_write()) since_ns_ = base::now_ns();
  out_.erase(0, sent_);
  sent_ = 0;
  out_ += bytes;
}

bool Connection::send() {
  while (wants_to_write()) {
    const ssize_t count = ::send(socket(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    sent_ += static_cast<std::size_t>(count);
    since_ns_ = base::now_ns();
  }
  out_.clear();
  sent_ = 0;
  if (state_ == State::leaving) return true;
  if (ends_) {
    ::shutdown(socket(), SHUT_WR);
    state_ = State::leaving;
    since_ns_ = base::now_ns();
  }
  if (state_ == State::writing) state_ = State::reading;
  return true;
}

}  // namespace lockstep::http
