// Protocol buffers as they lie in files, written field by field.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep::journal::protobuf {

inline void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}
// Bytes as they are in memory, which is how both formats that are written here store numbers.
template <typename T>
void put_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
// A text, or a message in its bytes.
inline void put_text(std::string& out, int field, std::string_view text) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | 2);
  put_varint(out, text.size());
  out += text;
}
inline void put_number(std::string& out, int field, std::int64_t value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3);
  put_varint(out, static_cast<std::uint64_t>(value));
}

}  // namespace lockstep::journal::protobuf
