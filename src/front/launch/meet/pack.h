// Values as bytes and back, for messages between launchers: whole numbers as 8 bytes, texts with their length before them.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch::meet {

// Bytes that are no message of ours: cut off, too long, or of another version.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Packer {
 public:
  Packer& number(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 0xff);
    return *this;
  }
  Packer& text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  std::int64_t number() {
    const std::string_view bytes = cut(8);
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    return static_cast<std::int64_t>(value);
  }
  std::string text() { return std::string(cut(length())); }
  // How many of something follow, each at least one number long: never more than what is left could hold.
  std::size_t count() {
    const std::size_t many = length();
    if (many > rest_.size() / 8) throw Malformed("a list is longer than its message");
    return many;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::size_t length() {
    const std::int64_t value = number();
    if (value < 0) throw Malformed("a negative length");
    return static_cast<std::size_t>(value);
  }
  std::string_view cut(std::size_t size) {
    if (size > rest_.size()) throw Malformed("a message is cut off");
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string_view rest_;
};

}  // namespace lockstep::launch::meet
