// Training and validation data, one after the other.
#include "front/app/prepare_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"

namespace lockstep::app {
namespace {

// A line that is written over, ten times a second at most.
class Bar {
 public:
  void show(double share, const std::string& what) {
    if (!terminal_ || base::seconds_since(drawn_ns_) < 0.1) return;
    drawn_ns_ = base::now_ns();
    constexpr int width = 24;
    const int filled = static_cast<int>(width * share);
    fmt::print(stderr, "\r\033[K  [{}{}] {:.0f}%  tokenising {}", std::string(static_cast<std::size_t>(filled), '#'),
               std::string(static_cast<std::size_t>(width - filled), '.'), 100 * share, what);
    std::fflush(stderr);
  }
  ~Bar() {
    if (drawn_ns_ > 0) std::fputs("\r\033[K", stderr);
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::int64_t drawn_ns_ = 0;
};

}  // namespace

PreparedPart prepare_part(const config::DataConfig& data, std::int64_t seq_len, const std::shared_ptr<const records::Words>& words) {
  Bar bar;
  return {data.path,
          records::prepare(data, seq_len, words,
                           {.on_progress = [&](double share) { bar.show(share, data.path); },
                            .on_wait = [&] { fmt::print(stderr, "[data] another process tokenises {}; waiting for it.\n", data.path); }})};
}

std::vector<PreparedPart> prepare_data(const config::RunConfig& config) {
  const config::DataConfig& data = config.data;
  if (data.path.empty() || !records::needs_preparing(data, config.model)) return {};
  const std::int64_t seq_len = data.seq_len > 0 ? data.seq_len : config.model.max_seq_len;
  const auto words = records::open_words(data, config.model);
  std::vector<PreparedPart> parts;
  parts.push_back(prepare_part(data, seq_len, words));
  if (!data.validation_path.empty()) {
    config::DataConfig validation = data;
    validation.path = data.validation_path;
    validation.max_samples = 0;
    parts.push_back(prepare_part(validation, seq_len, words));
  }
  return parts;
}

std::string describe(const PreparedPart& part) {
  return fmt::format("{}: {}; {}", part.path, part.prepared.cache->counts().summary(),
                     part.prepared.made ? "tokenised and cached" : "cached");
}

}  // namespace lockstep::app
