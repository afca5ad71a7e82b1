// SHA-256 (FIPS 180-4), HMAC over it (RFC 2104), and what a proof of a shared secret needs beside them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::base {

constexpr std::size_t digest_bytes = 32;

std::string sha256(std::string_view message);                             // 32 raw bytes
std::string hmac_sha256(std::string_view key, std::string_view message);  // 32 raw bytes

// Takes the same time wherever two texts of one length differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

std::string random_bytes(std::size_t count);  // from the kernel, fit for secrets
std::string to_hex(std::string_view bytes);

}  // namespace lockstep::base
