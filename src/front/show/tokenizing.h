// How tokenizing goes, on the terminal.
#pragma once

#include <optional>
#include <string>

#include "base/progress_bar.h"
#include "front/job/prepare_data.h"

namespace lockstep::show {

// A bar where standard error is a terminal; gone when this is.
class TokenizingBar {
 public:
  void progress(const std::string& path, double share);
  static void waiting(const std::string& path);
  void clear() { bar_.reset(); }
  job::DataListener listener();  // refers to this

 private:
  std::optional<base::ProgressBar> bar_;
  std::string path_;  // of the bar
};

// "chat.jsonl: 12,345 records, 4.1M tokens, 38% trained, 12 cut; cached"
std::string describe(const job::PreparedPart& part);

}  // namespace lockstep::show
