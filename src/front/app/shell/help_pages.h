// The help of every verb as data: what completions and man pages are made from. Told once, by the verbs themselves.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

struct HelpFlag {
  std::vector<std::string> names;    // "--data", "-d"
  std::string value;                 // "FILE"; empty: a switch
  std::vector<std::string> choices;  // "auto", "cpu": where the value is one of these
  std::string says;
};
struct HelpPage {
  std::vector<std::string> words;  // "bench", "comm"; empty: lockstep itself
  std::string says;                // in one line
  std::string text;                // all of it, as --help prints it
  std::vector<HelpFlag> flags;
  std::vector<std::string> subcommands;

  std::string name() const;  // "lockstep bench comm"
};

// Flags, subcommands and first sentence in the text that `lockstep VERB --help` prints.
HelpPage read_help(std::vector<std::string> words, std::string text);

// Of lockstep and every verb and its subcommands, asked of this program itself.
std::vector<HelpPage> all_help_pages();
// The words for each verb in the general help: "train" and what it says of it.
struct VerbLine {
  std::string verb, says;
};
std::vector<VerbLine> verbs_in(const std::string& general_help);

std::string man_page(const HelpPage& page);  // roff
std::string bash_completion(std::span<const HelpPage> pages);
std::string zsh_completion(std::span<const HelpPage> pages);
std::string fish_completion(std::span<const HelpPage> pages);

}  // namespace lockstep::app
