// `lockstep completion`: what shells need to complete verbs, flags and their values.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "front/app/flags.h"
#include "front/app/shell/help_pages.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

// lockstep.1, lockstep-train.1, lockstep-bench-comm.1, ...
void write_man_pages(const std::filesystem::path& folder) {
  base::real_files().create_directories(folder);
  for (const HelpPage& page : all_help_pages()) {
    std::string name = page.name();
    for (char& c : name) c = c == ' ' ? '-' : c;
    base::write_text_atomically(base::real_files(), folder / (name + ".1"), man_page(page));
  }
}

}  // namespace

int run_completion_verb(std::span<const std::string> args) {
  std::string shell, man;
  CLI::App app{
      "Prints a completion script for a shell, made from the help of all verbs.\n\n  bash  source <(lockstep completion bash)\n"
      "  zsh   lockstep completion zsh > ~/.zfunc/_lockstep\n  fish  lockstep completion fish > ~/.config/fish/completions/lockstep.fish",
      "lockstep completion"};
  app.add_option("SHELL", shell, "bash, zsh or fish");
  app.add_option("--man-pages", man, "write man pages, made from the same help, into this folder instead");
  if (!read_flags(app, args, "completion")) return 0;
  if (!man.empty()) {
    write_man_pages(man);
    return 0;
  }
  if (shell != "bash" && shell != "zsh" && shell != "fish")
    throw base::usage_error("completion", "{}: there are bash, zsh and fish.",
                            shell.empty() ? "no shell was named" : "'" + shell + "' is not a shell that is known");
  const std::vector<HelpPage> pages = all_help_pages();
  const std::string text = shell == "bash" ? bash_completion(pages) : shell == "zsh" ? zsh_completion(pages) : fish_completion(pages);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace lockstep::app
