// One client: the bytes that came, the answer that goes out, and since when it lets us wait. Used by the server's loop alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/file/descriptor.h"
#include "front/http/message.h"
#include "front/http/stream.h"

namespace lockstep::http {

class Connection {
 public:
  enum class State {
    reading,
    answering,
    writing,
    streaming,
    leaving,  // all is said: what the client still sends is thrown away, so that it hears the answer and no reset
  };

  Connection(std::uint64_t id, base::Descriptor socket);

  std::uint64_t id() const { return id_; }
  int socket() const { return socket_.number(); }
  State state() const { return state_; }
  std::int64_t since_ns() const { return since_ns_; }  // when it last moved on, or began to send its request
  bool has_begun() const { return !in_.empty() || request_.has_value(); }
  bool is_cut_off() const { return client_is_done_ && state_ == State::reading; }  // no more will come of its request
  bool wants_to_write() const { return sent_ < out_.size(); }
  const std::shared_ptr<Stream>& stream() const { return stream_; }

  // False where the client is gone or sends what nobody wants.
  bool receive(const Limits& limits);
  // The next whole request, once: then it is `answering`. A refusal is the last that it hears.
  std::optional<std::variant<Request, Refusal>> next_request(const Limits& limits);
  void begin_answer(const Response& response);
  void append(std::string bytes);  // to a stream
  void end_after_this() { ends_ = true; }
  // False where the client is gone.
  bool send();

 private:
  std::uint64_t id_;
  base::Descriptor socket_;
  State state_ = State::reading;
  std::int64_t since_ns_;
  std::string in_, out_;
  std::size_t sent_ = 0;
  std::optional<Request> request_;  // its head is read, or it is being answered
  std::shared_ptr<Stream> stream_;
  bool ends_ = false;            // after the answer
  bool client_is_done_ = false;  // sending
};

}  // namespace lockstep::http
