// Known by its type on a device; on a CPU by the allocator's own words, since PyTorch knows no type of its own for it there.
#include "rank/train/memory/full_memory.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "rank/train/memory/held_buffers.h"

namespace lockstep::train {
namespace {

std::string human(std::int64_t bytes) { return base::human_bytes(static_cast<std::uint64_t>(bytes)); }

// What was asked for, " (4.0 MiB more were asked for)", or "", where the error says that the host's memory is full.
std::optional<std::string> tells_of_full_host(std::string_view text) {
  if (text.find("DefaultCPUAllocator: ") == text.npos) return std::nullopt;
  constexpr std::string_view before = "you tried to allocate ";
  const std::size_t at = text.find(before);
  if (at == text.npos) return "";
  const std::string_view rest = text.substr(at + before.size());
  std::int64_t bytes = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), bytes).ec != std::errc()) return "";
  return fmt::format(" ({} more were asked for)", human(bytes));
}

// " This rank held weights 1.1 GiB, gradients 2.2 GiB."
std::string held_words(const Run* run) {
  if (run == nullptr) return "";
  std::vector<std::string> words;
  for (const layout::PartBytes& part : held_buffers(*run))
    words.push_back(fmt::format("{} {}", layout::name_of(part.part), human(part.bytes)));
  return fmt::format(" Rank {} held {}.", run->world->place().rank, base::join(words, ", "));
}

}  // namespace

base::UserError full_host(std::string_view asked) {
  return base::machine_error(
      "memory", "the machine's memory is full{}. Lower trainer.batch_size or the number of ranks, or cut what they hold: --shard full.",
      asked);
}

std::optional<base::UserError> full_memory(const c10::Error& error, const Run* run) {
  const std::string_view text = error.what_without_backtrace();
  if (const auto asked = tells_of_full_host(text)) {
    const std::string held = held_words(run);
    return full_host(*asked + (held.empty() ? "" : "." + held.substr(0, held.size() - 1)));
  }
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) return std::nullopt;
  return base::machine_error("memory",
                             "the device's memory is full: {}.{} Lower trainer.batch_size (raise gradient_accumulation to keep the global "
                             "batch) or data.seq_len.",
                             text, held_words(run));
}

}  // namespace lockstep::train
