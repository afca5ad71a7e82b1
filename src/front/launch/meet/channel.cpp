// The handshake as three stages, then frames.
#include "front/launch/meet/channel.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash/sha256.h"

namespace lockstep::launch::meet {
namespace {

constexpr std::string_view magic = "lockstep machines 1\n";
constexpr std::size_t nonce_bytes = 32;
constexpr std::size_t header_bytes = 5;
constexpr std::size_t read_at_once = 64u << 10;

using Why = ChannelError::Why;

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::uint32_t length_in(std::string_view header) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(header[static_cast<std::size_t>(i)]);
  return value;
}

}  // namespace

Channel::Channel(Socket socket, Side side, std::string secret)
    : socket_(std::move(socket)), side_(side), secret_(std::move(secret)), my_nonce_(base::random_bytes(nonce_bytes)) {
  if (side_ == Side::first) out_ = std::string(magic) + my_nonce_;
}

// Both random numbers are in it, the first side's before the second's: no proof serves twice, none serves the other side.
std::string Channel::proof_of(Side side) const {
  const bool first = side_ == Side::first;
  const std::string both = first ? my_nonce_ + their_nonce_ : their_nonce_ + my_nonce_;
  return base::hmac_sha256(secret_, std::string(side == Side::first ? "first " : "second ") + both);
}

void Channel::agree_on_keys() {
  const bool first = side_ == Side::first;
  const std::string both = first ? my_nonce_ + their_nonce_ : their_nonce_ + my_nonce_;
  std::string downward = base::hmac_sha256(secret_, "from first " + both), upward = base::hmac_sha256(secret_, "from second " + both);
  my_key_ = first ? downward : upward;
  their_key_ = first ? upward : downward;
  stage_ = Stage::open;
}

void Channel::read() {
  for (;;) {
    // Before it has proven itself, the other side can make us hold no more than one read.
    const std::size_t before = in_.size();
    in_.resize(before + read_at_once);
    const ssize_t got = ::recv(socket_.file(), in_.data() + before, read_at_once, 0);
    const int error = errno;
    in_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)) return;
    if (got <= 0) {
      const bool spurned = side_ == Side::second && stage_ == Stage::proving;
      throw ChannelError(spurned ? Why::refused : Why::closed, got == 0 ? "the connection was closed" : std::strerror(error));
    }
    advance();
    if (static_cast<std::size_t>(got) < read_at_once) return;
  }
}

void Channel::advance() {
  if (stage_ == Stage::greeting && !take_greeting()) return;
  if (stage_ == Stage::proving && !take_proof()) return;
  while (stage_ == Stage::open && take_frame()) {
  }
}

// First: waits for the greeting with the proof. Second: for the greeting, and answers with its own and its proof.
bool Channel::take_greeting() {
  const std::string_view known = std::string_view(in_).substr(0, std::min(in_.size(), magic.size()));
  if (!magic.starts_with(known)) throw ChannelError(Why::other_program, "it is not a lockstep launcher of this version");
  if (in_.size() < magic.size() + nonce_bytes) return false;
  their_nonce_ = in_.substr(magic.size(), nonce_bytes);
  in_.erase(0, magic.size() + nonce_bytes);
  if (side_ == Side::second) out_ += std::string(magic) + my_nonce_ + proof_of(Side::second);
  stage_ = Stage::proving;
  return true;
}

bool Channel::take_proof() {
  if (in_.size() < base::digest_bytes) return false;
  const Side other = side_ == Side::first ? Side::second : Side::first;
  const bool known = base::equal_in_constant_time(std::string_view(in_).substr(0, base::digest_bytes), proof_of(other));
  in_.erase(0, base::digest_bytes);
  if (!known) throw ChannelError(Why::refused, "it does not know the secret");
  if (side_ == Side::first) out_ += proof_of(Side::first);
  agree_on_keys();
  return true;
}

bool Channel::take_frame() {
  if (in_.size() < header_bytes) return false;
  const std::size_t length = length_in(in_);
  if (length > most_bytes) throw ChannelError(Why::forged, "a frame is longer than any of ours");
  const std::size_t whole = header_bytes + length + base::digest_bytes;
  if (in_.size() < whole) return false;
  const std::string signed_part = little_endian(received_, 8) + in_.substr(0, header_bytes + length);
  const std::string_view signature = std::string_view(in_).substr(header_bytes + length, base::digest_bytes);
  if (!base::equal_in_constant_time(signature, base::hmac_sha256(their_key_, signed_part)))
    throw ChannelError(Why::forged, "a frame was changed on the way");
  ++received_;
  frames_.push_back({static_cast<std::uint8_t>(in_[4]), in_.substr(header_bytes, length)});
  in_.erase(0, whole);
  return true;
}

void Channel::write() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(socket_.file(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (sent < 0) throw ChannelError(Why::closed, std::strerror(errno));
    out_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::optional<Frame> Channel::next() {
  if (frames_.empty()) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

void Channel::send(std::uint8_t kind, std::string_view body) {
  base::check(established() && body.size() <= most_bytes, "frames go over proven connections and have a bounded size");
  std::string frame = little_endian(body.size(), 4) + static_cast<char>(kind);
  frame += body;
  const std::string signature = base::hmac_sha256(my_key_, little_endian(sent_++, 8) + frame);
  out_ += frame + signature;
}

}  // namespace lockstep::launch::meet
