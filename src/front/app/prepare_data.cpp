// Training and validation data, one after the other.
#include "front/app/prepare_data.h"

#include <fmt/format.h>

#include <cstdio>

#include "front/app/progress_bar.h"

namespace lockstep::app {

PreparedPart prepare_part(const config::DataConfig& data, std::int64_t seq_len, const std::shared_ptr<const records::Words>& words) {
  ProgressBar bar;
  return {data.path,
          records::prepare(
              data, seq_len, words,
              {.on_progress = [&](double share) { bar.show(static_cast<std::uint64_t>(share * 1000), 1000, "tokenising " + data.path); },
               .on_wait = [&] { fmt::print(stderr, "[data] another process tokenises {}; waiting for it.\n", data.path); }})};
}

std::vector<PreparedPart> prepare_data(const config::RunConfig& config) {
  const config::DataConfig& data = config.data;
  if (data.path.empty() || !records::needs_preparing(data, config.model)) return {};
  const std::int64_t seq_len = data.seq_len > 0 ? data.seq_len : config.model.max_seq_len;
  const auto words = records::open_words(data, config.model);
  std::vector<PreparedPart> parts;
  parts.push_back(prepare_part(data, seq_len, words));
  if (data.validation_path.empty()) return parts;
  const config::DataConfig validation = records::validation_of(data);
  if (records::needs_preparing(validation, config.model)) parts.push_back(prepare_part(validation, seq_len, words));
  return parts;
}

std::string describe(const PreparedPart& part) {
  return fmt::format("{}: {}; {}", part.path, part.prepared.cache->counts().summary(),
                     part.prepared.made ? "tokenised and cached" : "cached");
}

}  // namespace lockstep::app
