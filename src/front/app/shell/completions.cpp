// Completions for bash, zsh and fish, and man pages, from pages of help.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "front/app/shell/help_pages.h"
#include "front/catalog/catalog.h"

namespace lockstep::app {
namespace {

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::vector<std::string> words_of(const HelpPage& page) {
  std::vector<std::string> words = page.subcommands;
  for (const HelpFlag& flag : page.flags) words.insert(words.end(), flag.names.begin(), flag.names.end());
  if (page.words == std::vector<std::string>{"explain"}) {
    for (const catalog::Entry& entry : catalog::entries()) words.emplace_back(entry.code);
  }
  if (page.words == std::vector<std::string>{"ask"}) words.insert(words.end(), {"save", "evaluate", "sample", "stop"});
  if (page.words == std::vector<std::string>{"completion"}) words.insert(words.end(), {"bash", "zsh", "fish"});
  return words;
}

// Verbs whose arguments are runs: folders under runs/ are offered by name.
bool takes_runs(const HelpPage& page) { return page.text.find("a run's folder, or its name") != std::string::npos; }

std::string joined(const std::vector<std::string>& words) { return base::join(words, " "); }

std::vector<std::string> verb_names(std::span<const HelpPage> pages) {
  std::vector<std::string> names;
  for (const HelpPage& page : pages) {
    if (page.words.size() == 1) names.push_back(page.words[0]);
  }
  names.insert(names.end(), {"help", "--help", "--version"});
  return names;
}

std::string for_man(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    begins = c == '\n';
  }
  return out;
}

// When a page's words are offered: its verb (and second word) were typed, and no second word that has a page of its own.
std::string fish_place(const HelpPage& page) {
  const bool has_second = page.words.size() > 1;
  std::string place = "__lockstep_at " + page.words[0] + " " + (has_second ? page.words[1] : "''");
  for (const std::string& other : page.subcommands) place += " " + other;
  return shell_quoted(place);
}

}  // namespace

std::string man_page(const HelpPage& page) {
  std::string name = page.name();
  std::replace(name.begin(), name.end(), ' ', '-');
  return fmt::format(".TH {} 1\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n.nf\n{}\n.fi\n", for_man(name), for_man(name), for_man(page.says),
                     for_man(page.text));
}

std::string bash_completion(std::span<const HelpPage> pages) {
  std::string words, values, runs;
  for (const HelpPage& page : pages) {
    if (page.words.empty()) continue;
    const std::string key = joined(page.words);
    words += fmt::format("    {}) words={} ;;\n", shell_quoted(key), shell_quoted(joined(words_of(page))));
    if (takes_runs(page)) runs += (runs.empty() ? "" : "|") + shell_quoted(key);
    for (const HelpFlag& flag : page.flags) {
      if (flag.choices.empty()) continue;
      for (const std::string& name : flag.names)
        values += fmt::format("    {}) values={} ;;\n", shell_quoted(key + " " + name), shell_quoted(joined(flag.choices)));
    }
  }
  return fmt::format(R"(# bash completion for lockstep. Made by `lockstep completion bash`; in ~/.bashrc: source <(lockstep completion bash)
_lockstep() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]-}} sub=${{COMP_WORDS[2]-}} words= values= key
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || {{ [ "$verb" = help ] && [ "$COMP_CWORD" -eq 2 ]; }}; then
    COMPREPLY=($(compgen -W {0} -- "$cur"))
    return
  fi
  _lockstep_words "$verb $sub" || _lockstep_words "$verb" || return
  _lockstep_values "$key $prev"
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case "$key" in
    {3}) [ -d runs ] && COMPREPLY+=($(cd runs && compgen -d -- "$cur")) ;;
  esac
  case "$cur" in
    -*) ;;
    *) COMPREPLY+=($(compgen -f -- "$cur")) ;;
  esac
}}
_lockstep_words() {{
  key=$1
  case "$1" in
{1}    *) return 1 ;;
  esac
}}
_lockstep_values() {{
  case "$1" in
{2}    *) ;;
  esac
}}
complete -o filenames -F _lockstep lockstep
)",
                     shell_quoted(joined(verb_names(pages))), words, values, runs.empty() ? "''" : runs);
}

std::string zsh_completion(std::span<const HelpPage> pages) {
  std::string verbs, cases;
  const auto described = [](const std::string& word, std::string says) {
    std::replace(says.begin(), says.end(), ':', ',');
    return shell_quoted(word + ":" + says);
  };
  for (const HelpPage& page : pages) {
    if (page.words.empty()) continue;
    if (page.words.size() == 1) verbs += "    " + described(page.words[0], page.says) + "\n";
    std::string list;
    for (const HelpFlag& flag : page.flags) {
      for (const std::string& name : flag.names) list += " " + described(name, flag.says);
    }
    for (const std::string& word : words_of(page)) {
      if (!word.starts_with('-')) list += " " + shell_quoted(word);
    }
    std::string values;
    for (const HelpFlag& flag : page.flags) {
      if (flag.choices.empty()) continue;
      for (const std::string& name : flag.names)
        values += fmt::format("        {}) compadd -- {}; return ;;\n", shell_quoted(name), joined(flag.choices));
    }
    const std::string runs = takes_runs(page) ? " runs/*(N/:t)" : "";
    cases += fmt::format("    {})\n      case \"$prev\" in\n{}        *) ;;\n      esac\n      list=({}{})\n      ;;\n",
                         shell_quoted(joined(page.words)), values, list, runs);
  }
  return fmt::format(R"(#compdef lockstep
# zsh completion for lockstep. Made by `lockstep completion zsh > ~/.zfunc/_lockstep`
_lockstep() {{
  local prev=${{words[CURRENT-1]}} verb=${{words[2]}} sub=${{words[3]}} key
  local -a list verbs
  verbs=(
{}    'help:what a verb does'
    '--help:all verbs'
    '--version:what this is, and what is inside'
  )
  if (( CURRENT == 2 )) || [[ $verb == help && $CURRENT -eq 3 ]]; then
    _describe 'verb' verbs
    return
  fi
  for key in "$verb $sub" "$verb"; do
    list=()
    case "$key" in
{}    esac
    (( ${{#list}} )) && break
  done
  _describe 'word' list
  _files
}}
# Found in fpath this file is the function, called for a completion; sourced it only makes itself known.
if [[ ${{funcstack[1]-}} == _lockstep ]]; then _lockstep "$@"; else compdef _lockstep lockstep; fi
)",
                     verbs, cases);
}

std::string fish_completion(std::span<const HelpPage> pages) {
  std::string text = R"(# fish completion for lockstep. Made by `lockstep completion fish > ~/.config/fish/completions/lockstep.fish`
# Whether VERB and SECOND ('': any but the others that are named) begin the line.
function __lockstep_at
  set -l typed (commandline -opc)[2..-1]
  test "$typed[1]" = "$argv[1]"; or return 1
  test -n "$argv[2]"; and begin; test "$typed[2]" = "$argv[2]"; return; end
  not contains -- "$typed[2]" $argv[3..-1]
end
function __lockstep_begins
  set -l typed (commandline -opc)[2..-1]
  test (count $typed) -eq 0; or test "$typed" = help
end
function __lockstep_runs
  for run in runs/*/
    basename $run
  end
end
complete -c lockstep -n __lockstep_begins -f -a help -d 'what a verb does'
complete -c lockstep -n __lockstep_begins -f -l help -d 'all verbs'
complete -c lockstep -n __lockstep_begins -f -l version -d 'what this is, and what is inside'
)";
  for (const HelpPage& page : pages) {
    if (page.words.empty()) continue;
    if (page.words.size() == 1)
      text +=
          fmt::format("complete -c lockstep -n __lockstep_begins -f -a {} -d {}\n", shell_quoted(page.words[0]), shell_quoted(page.says));
    const std::string when = fish_place(page);
    for (const std::string& word : words_of(page)) {
      if (!word.starts_with('-')) text += fmt::format("complete -c lockstep -n {} -a {}\n", when, shell_quoted(word));
    }
    if (takes_runs(page)) text += fmt::format("complete -c lockstep -n {} -a '(__lockstep_runs)' -d run\n", when);
    for (const HelpFlag& flag : page.flags) {
      std::string names;
      for (const std::string& name : flag.names) names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const std::string value = flag.value.empty() ? "" : flag.choices.empty() ? " -r" : " -x -a " + shell_quoted(joined(flag.choices));
      text += fmt::format("complete -c lockstep -n {}{}{} -d {}\n", when, names, value, shell_quoted(flag.says));
    }
  }
  return text;
}

}  // namespace lockstep::app
