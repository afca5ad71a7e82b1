// Another `lockstep` at work for the page: its lines as they come, an end to it, and no shell.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/file/descriptor.h"

namespace lockstep::serve {

// One thread at a time, but for interrupt().
class Process {
 public:
  // `arguments`: behind `lockstep`. `variables`: "NAME=VALUE", beside the page's own. UserError where it cannot be started.
  explicit Process(const std::vector<std::string>& arguments, std::vector<std::string> variables = {});
  ~Process();  // ends it
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next whole line of its standard output; nothing at its end, or where none came within so long.
  std::optional<std::string> read_line(double timeout_s);
  bool write(std::string_view text);  // to its standard input; false where it listens no more
  void close_input() { input_.close(); }
  bool ended() const { return ended_; }
  // How it ended, once its output has.
  int exit_code();
  const std::string& complaints() const { return complaints_; }  // standard error, so far
  void interrupt() const;                                        // as Ctrl-C does

 private:
  void take(int descriptor, std::string& into, bool& open);

  static constexpr std::size_t most_bytes = 32 << 20;
  pid_t pid_ = 0;
  base::Descriptor input_, output_, errors_;
  std::string text_, complaints_;
  bool output_open_ = true, errors_open_ = true, ended_ = false;
  std::optional<int> exit_code_;
};

// What went wrong in the program's own words.
std::string words_of(const std::string& complaints);
// Runs it to its end: all that it printed. UserError with its own words where it fails, or takes longer.
std::string output_of(const std::vector<std::string>& arguments, double timeout_s);

}  // namespace lockstep::serve
