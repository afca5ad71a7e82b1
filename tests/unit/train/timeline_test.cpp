// Lanes of a timeline, and what it tells of a step.
#include "rank/train/watch/timeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

namespace lockstep::train {
namespace {

TEST(Timeline, ALaneEndsWhatItIsAtWhenSomethingElseBegins) {
  Timeline timeline(at::kCPU);
  timeline.begin("step", "forward");
  timeline.begin("waits", "all_gather");
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  timeline.end("waits");
  timeline.begin("step", "backward");
  timeline.end("waits");  // nothing is open there
  timeline.end("step");
  timeline.begin("step", "still going on");
  const std::vector<Timeline::Span> spans = timeline.take();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].name, "forward");
  EXPECT_EQ(spans[1].lane, "waits");
  EXPECT_GE(spans[1].seconds(), 0.003);
  EXPECT_LE(spans[1].seconds(), spans[0].seconds());
  EXPECT_EQ(spans[2].name, "backward");
  EXPECT_EQ(spans[2].begin_ns, spans[0].end_ns);
  EXPECT_TRUE(timeline.take().empty()) << "it starts anew";
  const auto trace = nlohmann::json::parse(to_trace(spans))["traceEvents"];
  EXPECT_EQ(trace.size(), 5u) << "two rows have names";
}

// An operation that was under way when the timeline started anew.
TEST(Timeline, WhatBeganBeforeIsThereFromTheBeginning) {
  Timeline timeline(at::kCPU);
  timeline.begin("all_gather", "all_gather");
  timeline.take();
  timeline.begin("step", "forward");
  timeline.end("all_gather");
  timeline.end("step");
  const std::vector<Timeline::Span> spans = timeline.take();
  ASSERT_EQ(spans.size(), 2u);
  const auto& gather = spans[spans[0].lane == "all_gather" ? 0 : 1];
  EXPECT_EQ(gather.name, "all_gather");
  EXPECT_EQ(gather.begin_ns, spans[0].begin_ns);
}

}  // namespace
}  // namespace lockstep::train
