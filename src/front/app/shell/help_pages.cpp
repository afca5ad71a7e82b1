// Runs this program with --help and reads what it prints.
#include "front/app/shell/help_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "front/app/verbs.h"
#include "front/job/naming.h"
#include "front/launch/libtorch.h"

namespace lockstep::app {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::islower(c) != 0 || c == '-' || std::isdigit(c) != 0; }) &&
         std::islower(static_cast<unsigned char>(text[0])) != 0;
}

// "auto|cuda|cpu" -> its words; nothing for "PATH|auto", whose first is none of them.
std::vector<std::string> choices_in(const std::string& value) {
  if (value.find('|') == value.npos) return {};
  std::vector<std::string> words = base::split(value, '|');
  return std::all_of(words.begin(), words.end(), is_word) ? words : std::vector<std::string>{};
}

// "auto, cpu or cuda", with which a flag's sentence begins.
std::vector<std::string> choices_in_sentence(const std::string& says) {
  std::string list = says.substr(0, says.find_first_of(":;"));
  const std::size_t last = list.rfind(" or ");
  if (last == list.npos) return {};
  list.replace(last, 4, ", ");
  std::vector<std::string> words;
  for (const std::string& word : base::split(list, ',')) words.push_back(base::trim(word));
  return words.size() > 1 && std::all_of(words.begin(), words.end(), is_word) ? words : std::vector<std::string>{};
}

// A line that begins with a flag, at most six columns in: "  --data, -d FILE    Training data", "  -h,--help   Print".
std::optional<HelpFlag> read_flag(const std::string& line, bool& says_follows) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == line.npos || begin < 2 || begin > 6 || line[begin] != '-') return std::nullopt;
  const std::size_t gap = line.find("  ", begin);
  const std::string head = base::trim(line.substr(begin, gap == line.npos ? gap : gap - begin));
  HelpFlag flag;
  flag.says = gap == line.npos ? "" : base::trim(line.substr(gap));
  says_follows = flag.says.empty();
  std::string names = head;
  const std::size_t space = [&] {  // behind the last name
    std::size_t at = 0;
    for (;;) {
      const std::size_t end = head.find_first_of(" ,", at);
      if (end == head.npos) return head.size();
      std::size_t next = head.find_first_not_of(" ,", end);
      if (next == head.npos || head[next] != '-') return end;
      at = next;
    }
  }();
  names = head.substr(0, space);
  flag.value = base::trim(head.substr(space));
  for (std::string name : base::split(names, ',')) {
    name = base::trim(name);
    if (name.starts_with("--[no-]")) {
      flag.names.push_back("--" + name.substr(7));
      flag.names.push_back("--no-" + name.substr(7));
    } else if (!name.empty()) {
      flag.names.push_back(name);
    }
  }
  flag.choices = choices_in(flag.value);
  return flag;
}

std::string first_sentence(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const std::size_t colon = line.find(": ");
  std::string said = line.starts_with("lockstep ") && colon != line.npos ? line.substr(colon + 2) : line;
  if (said.starts_with("lockstep ")) {  // a line of usage: the next that says something tells
    for (const std::string& other : base::split(text, '\n')) {
      if (!other.empty() && !other.starts_with("lockstep") && !other.starts_with(' ')) {
        said = other;
        break;
      }
    }
  }
  const std::size_t stop = said.find(". ");
  said = stop == said.npos ? said : said.substr(0, stop);
  return said.ends_with('.') ? said.substr(0, said.size() - 1) : said;
}

std::string ask_self(const std::vector<std::string>& words) {
  std::string command = base::quoted(launch::own_program().string());
  for (const std::string& word : words) command += " " + word;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen((command + " --help 2>&1").c_str(), "r"), ::pclose);
  if (!pipe) throw base::machine_error("help", "cannot run {}.", command);
  std::string text;
  std::array<char, 4096> piece{};
  for (std::size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), pipe.get())) > 0;) text.append(piece.data(), got);
  return text;
}

// "  lockstep config show ..." and, behind "Subcommands:", lines of one word.
std::vector<std::string> subcommands_in(const std::vector<std::string>& words, const std::vector<std::string>& lines) {
  std::vector<std::string> found;
  const std::string prefix = fmt::format("  lockstep {} ", base::join(words, " "));
  bool listed = false;
  for (const std::string& line : lines) {
    if (line == "Subcommands:" || line == "SUBCOMMANDS:") listed = true;
    std::string word;
    if (line.starts_with(prefix)) word = line.substr(prefix.size(), line.find(' ', prefix.size()) - prefix.size());
    if (listed && is_word(line)) word = line;
    if (is_word(word) && std::find(found.begin(), found.end(), word) == found.end()) found.push_back(word);
  }
  return found;
}

}  // namespace

std::string HelpPage::name() const { return words.empty() ? "lockstep" : "lockstep " + base::join(words, " "); }

HelpPage read_help(std::vector<std::string> words, std::string text) {
  HelpPage page{.words = std::move(words), .text = std::move(text)};
  page.says = first_sentence(page.text);
  const std::vector<std::string> lines = base::split(page.text, '\n');
  bool says_follows = false;
  for (const std::string& line : lines) {
    if (auto flag = read_flag(line, says_follows)) {
      const bool known = std::any_of(page.flags.begin(), page.flags.end(), [&](const HelpFlag& one) { return one.names == flag->names; });
      if (!known) page.flags.push_back(std::move(*flag));
    } else if (says_follows && !page.flags.empty()) {
      page.flags.back().says = base::trim(line);
      says_follows = false;
    }
  }
  for (HelpFlag& flag : page.flags) {
    if (flag.choices.empty() && !flag.value.empty()) flag.choices = choices_in_sentence(flag.says);
  }
  if (page.words.size() == 1) page.subcommands = subcommands_in(page.words, lines);
  return page;
}

std::vector<VerbLine> verbs_in(const std::string& general_help) {
  std::vector<VerbLine> verbs;
  for (const std::string& line : base::split(general_help, '\n')) {
    constexpr std::string_view prefix = "  lockstep ";
    if (!line.starts_with(prefix)) continue;
    const std::string rest = line.substr(prefix.size());
    const std::string verb = rest.substr(0, rest.find(' '));
    const std::size_t gap = rest.find("  ");
    if (is_word(verb) && gap != rest.npos) verbs.push_back({verb, base::trim(rest.substr(gap))});
  }
  return verbs;
}

std::vector<HelpPage> all_help_pages() {
  std::vector<HelpPage> pages = {read_help({}, general_help())};
  for (const VerbLine& verb : verbs_in(general_help())) {
    HelpPage page = read_help({verb.verb}, ask_self({verb.verb}));
    page.says = verb.says;
    pages.push_back(page);
    for (const std::string& word : page.subcommands) {
      HelpPage below = read_help({verb.verb, word}, ask_self({verb.verb, word}));
      if (below.text != page.text) pages.push_back(std::move(below));
    }
  }
  return pages;
}

}  // namespace lockstep::app
