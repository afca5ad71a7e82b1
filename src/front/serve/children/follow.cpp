// A thread that reads lines and passes them on.
#include "front/serve/children/follow.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quiet_thread.h"
#include "front/serve/children/process.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string line_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

Follow::~Follow() {
  closing_ = true;
  base::Lock lock(mutex_);
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<http::Stream> Follow::begin(const std::vector<std::string>& arguments, double timeout_s) {
  if (works_.exchange(true))
    throw base::usage_error("ui", "`lockstep {}` is at work already, for another page. Wait for its end.", arguments.front());
  auto stream = std::make_shared<http::Stream>();
  base::Lock lock(mutex_);
  if (thread_.joinable()) thread_.join();
  thread_ = base::quiet_thread([this, arguments, timeout_s, stream] {
    try {
      follow(arguments, timeout_s, *stream);
    } catch (const base::UserError& error) {
      stream->push("end", line_text({{"exit_code", static_cast<int>(error.code())}, {"complaints", error.what()}}));
    }
    works_ = false;
    stream->end();
  });
  return stream;
}

void Follow::follow(const std::vector<std::string>& arguments, double timeout_s, http::Stream& stream) const {
  Process process(arguments);
  process.close_input();
  const std::int64_t begun = base::now_ns();
  while (!process.ended() && stream.open() && !closing_ && base::seconds_since(begun) < timeout_s) {
    const auto line = process.read_line(0.5);
    const auto json = line ? base::json_if_any(*line) : std::nullopt;
    if (json) stream.push("line", line_text(*json));
  }
  if (process.ended()) stream.push("end", line_text({{"exit_code", process.exit_code()}, {"complaints", process.complaints()}}));
}

}  // namespace lockstep::serve
