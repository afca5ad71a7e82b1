// Numbers what there is to say, so that a mark on the device is a number.
#include "rank/train/watch/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::train {
namespace {

constexpr std::int64_t most_marks = 1 << 18;  // 4 MiB: some thousand micro-steps of a large model

class OnTimeline final : public kernels::Progress {
 public:
  OnTimeline(std::shared_ptr<kernels::Progress> progress, std::shared_ptr<Timeline> timeline)
      : progress_(std::move(progress)), timeline_(std::move(timeline)) {}
  void mark() override {
    progress_->mark();
    timeline_->begin("blocks", "block");
  }
  std::uint64_t count() const override { return progress_->count(); }

 private:
  std::shared_ptr<kernels::Progress> progress_;
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace

std::shared_ptr<kernels::Progress> with_blocks_on(std::shared_ptr<Timeline> timeline, std::shared_ptr<kernels::Progress> progress) {
  if (!timeline || !progress) return progress;
  return std::make_shared<OnTimeline>(std::move(progress), std::move(timeline));
}

Timeline::Timeline(at::Device device) : tape_(kernels::make_tape(device, most_marks)) {}

void Timeline::mark(std::string_view lane, std::string_view name) {
  int number = 0;
  {
    const base::Lock lock(mutex_);
    const auto [found, fresh] = numbers_.try_emplace(What{std::string(lane), std::string(name)}, static_cast<int>(known_.size()));
    if (fresh) known_.push_back(found->first);
    number = found->second;
  }
  tape_->mark(number);
}

void Timeline::begin(std::string_view lane, std::string_view name) { mark(lane, name); }
void Timeline::end(std::string_view lane) { mark(lane, {}); }

std::vector<Timeline::Span> Timeline::take() {
  const std::vector<kernels::Tape::Mark> marks = tape_->take();
  const base::Lock lock(mutex_);
  std::vector<Span> spans;
  std::map<std::string, Span> open;
  std::set<std::string> seen;
  for (const kernels::Tape::Mark& mark : marks) {
    const What& what = known_.at(static_cast<std::size_t>(mark.what));
    const bool first = seen.insert(what.lane).second;
    if (const auto before = open.find(what.lane); before != open.end()) {
      before->second.end_ns = mark.nanoseconds;
      spans.push_back(before->second);
      open.erase(before);
    } else if (first && what.name.empty()) {
      spans.push_back({what.lane, what.lane, marks.front().nanoseconds, mark.nanoseconds});
    }
    if (!what.name.empty()) open[what.lane] = {what.lane, what.name, mark.nanoseconds, 0};
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  return spans;
}

std::string to_trace(const std::vector<Timeline::Span>& spans) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  std::map<std::string, int> rows;
  const std::int64_t start = spans.empty() ? 0 : spans.front().begin_ns;
  for (const Timeline::Span& span : spans) {
    const auto [row, fresh] = rows.try_emplace(span.lane, static_cast<int>(rows.size()));
    if (fresh) events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", 0}, {"tid", row->second}, {"args", {{"name", span.lane}}}});
    events.push_back({{"ph", "X"},
                      {"name", span.name},
                      {"pid", 0},
                      {"tid", row->second},
                      {"ts", static_cast<double>(span.begin_ns - start) * 1e-3},
                      {"dur", static_cast<double>(span.end_ns - span.begin_ns) * 1e-3}});
  }
  return nlohmann::ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace lockstep::train
