// Training and validation data, one after the other.
#include "front/job/prepare_data.h"

namespace lockstep::job {

PreparedPart prepare_part(const config::DataConfig& data, std::int64_t seq_len, const std::shared_ptr<const text::Language>& language,
                          const DataListener& listener) {
  return {data.path, corpus::prepare(data, seq_len, language,
                                     {.on_progress = [&](double share) { listener.on_progress(data.path, share); },
                                      .on_wait = [&] { listener.on_wait(data.path); }})};
}

std::vector<PreparedPart> prepare_data(const config::RunConfig& config, const DataListener& listener) {
  const config::DataConfig& data = config.data;
  if (data.path.empty() || !corpus::needs_preparing(data, config.model)) return {};
  const std::int64_t seq_len = data.seq_len > 0 ? data.seq_len : config.model.max_seq_len;
  const auto language = corpus::language_of_records(data, config.model);
  std::vector<PreparedPart> parts;
  parts.push_back(prepare_part(data, seq_len, language, listener));
  if (data.validation_path.empty()) return parts;
  const config::DataConfig validation = corpus::validation_of(data);
  if (corpus::needs_preparing(validation, config.model)) parts.push_back(prepare_part(validation, seq_len, language, listener));
  return parts;
}

}  // namespace lockstep::job
