// Known by the allocator's own words.
#include "rank/train/memory/full_memory.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "base/text.h"

namespace lockstep::train {

std::optional<std::string> tells_of_full_host(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  if (text.find("DefaultCPUAllocator: ") == text.npos) return std::nullopt;
  constexpr std::string_view before = "you tried to allocate ";
  const std::size_t at = text.find(before);
  if (at == text.npos) return "";
  const std::string_view rest = text.substr(at + before.size());
  std::uint64_t bytes = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), bytes).ec != std::errc()) return "";
  return fmt::format(" ({} more were asked for)", base::human_bytes(bytes));
}

}  // namespace lockstep::train
