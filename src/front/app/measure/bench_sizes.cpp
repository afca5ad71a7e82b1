// Reads "1K..1G".
#include "front/app/measure/bench_sizes.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::app {
namespace {

constexpr std::int64_t largest = std::int64_t(1) << 40;

std::int64_t parse_size(const std::string& text, const std::string& whole) {
  std::string digits = base::trim(text);
  std::int64_t unit = 1;
  if (!digits.empty()) {
    const std::size_t place = std::string("KMG").find(static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back()))));
    if (place != std::string::npos) {
      unit = std::int64_t(1) << (10 * (place + 1));
      digits.pop_back();
    }
  }
  const auto number = base::parse_integer(digits);
  if (!number || *number <= 0 || *number > largest / unit || *number * unit % 4 != 0) {
    throw base::usage_error("bench", "--sizes {}: '{}' is not a size. Write bytes, a multiple of 4, with K, M or G: 1K..1G, or 64K,1M.",
                            whole, text);
  }
  return *number * unit;
}

}  // namespace

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  std::vector<std::int64_t> sizes;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const std::int64_t first = parse_size(text.substr(0, dots), text), last = parse_size(text.substr(dots + 2), text);
    if (first > last) throw base::usage_error("bench", "--sizes {}: the first size is the larger one. Turn them round.", text);
    for (std::int64_t size = first; size < last; size *= 4) sizes.push_back(size);
    sizes.push_back(last);
    return sizes;
  }
  for (const std::string& part : base::split(text, ',')) sizes.push_back(parse_size(part, text));
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace lockstep::app
