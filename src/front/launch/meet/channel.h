// One connection between two launchers that prove to each other that they know the same secret, then exchange frames that nobody
// without it can make, change, repeat or leave out. What is said can be read on the way: it is authentic, not hidden.
//
//   first    -> second   magic, 32 random bytes
//   second   -> first    magic, 32 random bytes, HMAC(secret, "second" both)
//   first    -> second   HMAC(secret, "first" both)
//   then both ways       length u32, kind u8, body, HMAC(key of that direction, number of the frame, length, kind, body)
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>

#include "front/launch/meet/socket.h"

namespace lockstep::launch::meet {

// Why a connection is of no more use.
class ChannelError : public std::runtime_error {
 public:
  enum class Why { closed, refused, other_program, forged };
  ChannelError(Why why, const std::string& text) : std::runtime_error(text), why(why) {}
  Why why;
};

struct Frame {
  std::uint8_t kind = 0;
  std::string body;
};

// Never blocks: whoever owns it polls its socket and calls read() and write(). Not thread-safe.
class Channel {
 public:
  enum class Side { first, second };  // who was connected to, and who connected
  Channel(Socket socket, Side side, std::string secret);

  const Socket& socket() const { return socket_; }
  bool established() const { return stage_ == Stage::open; }  // both have proven themselves
  bool has_to_write() const { return !out_.empty(); }
  std::size_t queued_bytes() const { return out_.size(); }

  // ChannelError when the connection ends or the other side is not what it should be.
  void read();
  void write();
  std::optional<Frame> next();
  // Only once established.
  void send(std::uint8_t kind, std::string_view body);

  static constexpr std::size_t most_bytes = 8u << 20;  // of a frame's body

 private:
  enum class Stage { greeting, proving, open };
  void advance();
  bool take_greeting();
  bool take_proof();
  void agree_on_keys();
  bool take_frame();
  std::string proof_of(Side side) const;

  Socket socket_;
  Side side_;
  std::string secret_;
  Stage stage_ = Stage::greeting;
  std::string my_nonce_, their_nonce_;
  std::string my_key_, their_key_;
  std::uint64_t sent_ = 0, received_ = 0;
  std::string in_, out_;
  std::deque<Frame> frames_;
};

}  // namespace lockstep::launch::meet
