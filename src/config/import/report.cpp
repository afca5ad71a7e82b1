// The run file, and the report of what became of every key.
#include <algorithm>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/option.h"

namespace lockstep::config {

using Fate = ImportedKey::Fate;

ImportedFile Importer::result() && {
  std::string& yaml = result_.yaml;
  yaml = fmt::format("# Made by `lockstep config import` from {}, a file of {}.\n", path_.filename().string(), result_.program);
  for (const ImportedKey& key : result_.keys) {
    if (key.fate == Fate::refused) yaml += fmt::format("# refused: {}: {}: {}\n", key.theirs, key.value, key.says);
  }
  std::string_view section;
  for (const Option& option : options()) {
    const auto found = std::find_if(assigned_.begin(), assigned_.end(), [&](const auto& pair) { return pair.first == option.key; });
    if (found == assigned_.end()) continue;
    if (option.section() != section) yaml += fmt::format("\n{}:\n", option.section());
    section = option.section();
    const std::string line = fmt::format("{}{}: {}", section.empty() ? "" : "  ", option.leaf(), found->second.value);
    yaml += fmt::format("{:<43} # {}\n", line, found->second.theirs);
  }
  return std::move(result_);
}

std::size_t ImportedFile::count(Fate fate) const {
  return static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), [&](const ImportedKey& key) { return key.fate == fate; }));
}

std::string ImportedFile::report() const {
  std::string text;
  const auto group = [&](Fate fate, std::string_view title, auto line) {
    if (count(fate) == 0) return;
    text += fmt::format("{}\n", title);
    for (const ImportedKey& key : keys) {
      if (key.fate == fate) text += "  " + line(key) + "\n";
    }
  };
  const auto said = [](const ImportedKey& key) { return key.value.empty() ? key.theirs : fmt::format("{}: {}", key.theirs, key.value); };
  const auto arrow = [&](const ImportedKey& key) { return fmt::format("line {:<4} {}  ->  {}", key.line, said(key), key.says); };
  const auto reason = [&](const ImportedKey& key) { return fmt::format("line {:<4} {}  ({})", key.line, said(key), key.says); };
  group(Fate::mapped, "mapped", arrow);
  group(Fate::filled_in, fmt::format("filled in, because {}'s default is not ours", program),
        [](const ImportedKey& key) { return fmt::format("{}  ->  {}", key.theirs, key.says); });
  group(Fate::noted, fmt::format("noted: goes on, but not word for word as in {}", program), reason);
  group(Fate::ignored, "ignored: harmless", reason);
  group(Fate::refused, "refused: not possible here, the run file goes without", reason);
  text += fmt::format("{} file: {} mapped, {} filled in, {} noted, {} ignored, {} refused\n", program, count(Fate::mapped),
                      count(Fate::filled_in), count(Fate::noted), count(Fate::ignored), count(Fate::refused));
  return text;
}

}  // namespace lockstep::config
