// The border to the Rust crate, made safe: buffers that give themselves back, and errors as exceptions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/native.h"

namespace lockstep::text {

inline lockstep_view view_of(std::string_view text) { return {text.data(), text.size()}; }

class NativeBytes {
 public:
  NativeBytes() = default;
  ~NativeBytes() { lockstep_bytes_free(bytes_); }
  NativeBytes(const NativeBytes&) = delete;
  lockstep_bytes* out() { return &bytes_; }
  std::string_view view() const { return {bytes_.data, bytes_.size}; }
  std::string text() const { return std::string(view()); }

 private:
  lockstep_bytes bytes_ = {};
};

class NativeNumbers {
 public:
  NativeNumbers() = default;
  ~NativeNumbers() { lockstep_numbers_free(numbers_); }
  NativeNumbers(const NativeNumbers&) = delete;
  lockstep_numbers* out() { return &numbers_; }
  std::span<const std::uint32_t> all() const { return {numbers_.data, numbers_.size}; }

 private:
  lockstep_numbers numbers_ = {};
};

}  // namespace lockstep::text
