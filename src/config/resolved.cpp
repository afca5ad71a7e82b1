// The resolved settings as a file that says where each value came from, and reading it back.
#include <algorithm>

#include "config/config.h"
#include "config/follow_folder.h"
#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

constexpr std::size_t comment_column = 44;

std::string origin_comment(const Source& source) {
  switch (source.origin) {
    case Origin::standard: return "default";
    case Origin::derived: return source.text();
    case Origin::environment: return fmt::format("from {} (environment)", source.where);
    case Origin::file:
    case Origin::command_line: break;
  }
  std::string where = source.where;  // an assignment may hold anything; a comment ends with its line
  std::replace_if(where.begin(), where.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return fmt::format("from {}", where);
}

// Opens the sections that lead to `section` and are not open yet.
void open_sections(std::string& text, std::string_view before, std::string_view section) {
  std::size_t end = 0;
  for (int depth = 0; end < section.size(); ++depth) {
    const std::size_t dot = section.find('.', end);
    const std::size_t stop = dot == section.npos ? section.size() : dot;
    const std::string_view path = section.substr(0, stop);
    const bool open = before == path || (before.starts_with(path) && before.size() > path.size() && before[path.size()] == '.');
    if (!open) text += fmt::format("{}{:{}}{}:\n", depth == 0 ? "\n" : "", "", depth * 2, section.substr(end, stop - end));
    end = stop + 1;
  }
}

}  // namespace

std::string to_yaml(const Settings& settings) {
  std::string text = "# Settings of one run, each with where it came from.\n";
  std::string_view section;
  for (const Option& option : options()) {
    if (option.section() != section) open_sections(text, section, option.section());
    section = option.section();
    const auto depth = section.empty() ? 0 : 1 + std::count(section.begin(), section.end(), '.');
    const std::string line = fmt::format("{:{}}{}: {}", "", depth * 2, option.leaf(), write_value(option, option.get(settings.values)));
    const std::string meaning = meaning_when_empty(option, option.get(settings.values));
    text += fmt::format("{:<{}} # {}{}{}\n", line, comment_column, origin_comment(settings.source(option.key)), meaning.empty() ? "" : ": ",
                        meaning);
  }
  return text;
}

RunConfig load_resolved(const std::filesystem::path& path) {
  return load_complete({.file = path, .environment = {}, .assignments = {}}).values;
}

}  // namespace lockstep::config
