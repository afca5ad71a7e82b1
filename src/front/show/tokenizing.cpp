// One bar a file, and one line when it is ready.
#include "front/show/tokenizing.h"

#include <fmt/format.h>

#include <cstdio>

namespace lockstep::show {

void TokenizingBar::progress(const std::string& path, double share) {
  if (!bar_ || path != path_) bar_.emplace();
  path_ = path;
  bar_->show(static_cast<std::uint64_t>(share * 1000), 1000, "tokenizing " + path);
}

void TokenizingBar::waiting(const std::string& path) { fmt::print(stderr, "[data] another process tokenizes {}; waiting for it.\n", path); }

job::DataListener TokenizingBar::listener() {
  return {.on_progress = [this](const std::string& path, double share) { progress(path, share); },
          .on_wait = [](const std::string& path) { waiting(path); }};
}

std::string describe(const job::PreparedPart& part) {
  return fmt::format("{}: {}; {}", part.path, part.prepared.cache->counts().summary(),
                     part.prepared.made ? "tokenized and cached" : "cached");
}

}  // namespace lockstep::show
