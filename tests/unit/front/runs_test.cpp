// Run folders as they are listed, compared, plotted and watched.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/text.h"
#include "front/runs/compare.h"
#include "front/runs/curves.h"
#include "front/runs/live_run.h"
#include "front/runs/picture/strokes.h"
#include "front/runs/plot.h"
#include "front/runs/run_view.h"
#include "front/show/table.h"
#include "front/show/watch_screen.h"
#include "journal/ending.h"
#include "support/temporary_folder.h"

namespace lockstep::runs {
namespace {

namespace fs = std::filesystem;

std::string step_line(int step, double loss, const std::string& more = "") {
  return fmt::format(
      R"({{"step":{},"epoch":0.5,"loss":{},"grad_norm":1,"learning_rate":0.001,"tokens":{},"tokens_per_second":2000,"step_seconds":0.5{},"mfu":null,"time":"2026-01-31T12:{:02}:00Z"}})",
      step, std::isfinite(loss) ? fmt::format("{}", loss) : "null", step * 100, more, step % 60);
}

class RunsTest : public ::testing::Test {
 protected:
  fs::path make(const std::string& name, const std::string& config, const std::vector<std::string>& lines) {
    const fs::path folder = folder_.path() / name;
    fs::create_directories(folder);
    std::ofstream(folder / "config.yaml") << config;
    std::ofstream file(folder / "metrics.jsonl");
    for (const std::string& line : lines) file << line << "\n";
    return folder;
  }
  support::TemporaryFolder folder_;
};

const std::string started = R"({"event":"started","step":0,"time":"2026-01-31T12:00:00Z"})";
const std::string model = R"({"event":"model","parameters":5,"total_steps":40})";
const std::string complete = R"({"event":"finished","step":3,"reason":"complete","checkpoint":null})";

TEST_F(RunsTest, AFolderTellsHowFarTheRunIs) {
  const fs::path folder = make("a", "",
                               {started, model, step_line(1, 4), step_line(2, NAN), R"({"step":2,"eval_loss":3.5,"eval_tokens":9})",
                                step_line(3, 2), R"({"step":3,"eval_loss":3.75,"eval_tokens":9})", complete, "{\"step\":4,\"lo"});
  const RunView view = read_run(folder);
  EXPECT_EQ(view.name, "a");
  EXPECT_EQ(view.state, State::complete);
  EXPECT_EQ(view.step, 3);
  EXPECT_EQ(view.total_steps, 40);
  EXPECT_EQ(view.loss, 2);
  EXPECT_EQ(view.eval_loss, 3.75);
  EXPECT_EQ(view.best_eval_loss, 3.5);
  EXPECT_EQ(view.counted, "tokens");
  EXPECT_EQ(view.per_second, 2000);
  EXPECT_EQ(view.seconds, 180);
  EXPECT_EQ(view.mfu, std::nullopt);
  ASSERT_EQ(view.losses.size(), 2u);  // a loss that is not finite is no point
  EXPECT_EQ(view.losses[1].x, 3);
  // A start that has not ended, and nobody trains it.
  EXPECT_EQ(read_run(make("b", "", {started, model, complete, started, step_line(1, 4)})).state, State::failed);
  EXPECT_EQ(read_run(make("c", "", {})).step, 0);
  EXPECT_EQ(find_runs(folder_.path()).size(), 3u);
}

TEST_F(RunsTest, CurvesAreOfAnyNumberOverAnyAxis) {
  const std::string ranks = R"(,"rank_seconds":{"data":[0.25,0.75]})";
  const fs::path folder = make("a", "", {started, step_line(10, 4, ranks), step_line(20, 2, ranks)});
  EXPECT_EQ(read_curve(folder, "loss", Axis::step).points.back().y, 2);
  EXPECT_EQ(read_curve(folder, "loss", Axis::trained).points.back().x, 2000);
  EXPECT_NEAR(read_curve(folder, "loss", Axis::hours).points.back().x, 20.0 / 60, 1e-9);
  EXPECT_EQ(read_curve(folder, "rank_seconds.data", Axis::step).points.front().y, 0.75);
  EXPECT_TRUE(read_curve(folder, "los", Axis::step).points.empty());
  const auto names = metric_names(folder);
  EXPECT_NE(std::find(names.begin(), names.end(), "rank_seconds.data"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "grad_norm"), names.end());
}

TEST(Curves, ThinningKeepsPeaksAndEnds) {
  std::vector<Point> points;
  for (int i = 0; i < 100000; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.001)});
  points[54321].y = 7;
  const auto thin = thinned(points, 2000);
  EXPECT_LE(thin.size(), 2000u);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 99999);
  EXPECT_TRUE(std::any_of(thin.begin(), thin.end(), [](const Point& point) { return point.y == 7; }));
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
  EXPECT_EQ(thinned({{1, 2}}, 2000).size(), 1u);
}

TEST(Curves, SmoothingHasNoPullToZero) {
  const std::vector<Point> flat(50, {1, 3});
  for (const Point& point : smoothed(flat, 0.9)) EXPECT_NEAR(point.y, 3, 1e-12);
  const auto jump = smoothed({{0, 0}, {1, 1}}, 0.5);
  EXPECT_NEAR(jump[1].y, 2.0 / 3, 1e-12);
}

TEST(Plot, TicksAreRoundAndInside) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{3.21, 3.29}, {0, 1e6}, {-7, 13}, {1e-9, 3e-9}}) {
    const auto values = ticks(low, high, 6);
    EXPECT_GE(values.size(), 3u);
    EXPECT_LE(values.size(), 13u);
    EXPECT_GE(values.front(), low - 1e-12);
    EXPECT_LE(values.back(), high * (1 + 1e-9) + 1e-12);
  }
}

TEST(Plot, NamesAreEscapedAndNoNumberIsNotOne) {
  const Drawing drawing =
      draw({.title = "loss", .x_name = "step", .y_name = "<loss> & more", .curves = {{"a\"b<", {{0, 1}, {1, NAN}, {2, 3}}}, {"none", {}}}});
  const std::string svg = svg_of(drawing);
  EXPECT_NE(svg.find("&lt;loss&gt; &amp; more"), std::string::npos);
  EXPECT_NE(svg.find("a&quot;b&lt;"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_NE(svg.find("<path d=\" M76.0,484.0h0 M936.0,48.0h0\""), std::string::npos) << "a gap is no line\n" << svg;
  EXPECT_TRUE(png_of(drawing, 1).starts_with("\x89PNG"));
}

TEST(Plot, EveryLetterIsDrawnInsideItsPlace) {
  const Stroke box = write("\x01").strokes.at(0);
  const auto is_box = [&](const Stroke& stroke) {
    return std::equal(stroke.begin(), stroke.end(), box.begin(), box.end(),
                      [](const Point& a, const Point& b) { return a.x == b.x && a.y == b.y; });
  };
  for (char letter = '!'; letter <= '~'; ++letter) {
    const Writing writing = write(std::string(1, letter));
    ASSERT_FALSE(writing.strokes.empty()) << letter;
    double left = 1, right = 0;
    for (const Stroke& stroke : writing.strokes) {
      for (const Point& point : stroke) {
        left = std::min(left, point.x);
        right = std::max(right, point.x);
        EXPECT_GE(point.y, -0.25) << letter;
        EXPECT_LE(point.y, 0.85) << letter;
      }
    }
    EXPECT_GE(left, 0) << letter;
    EXPECT_LE(right, writing.width) << letter;
    EXPECT_FALSE(is_box(writing.strokes[0])) << letter;
  }
  EXPECT_EQ(write("\u00e9").width, write("\x01").width) << "one box a character, not one a byte";
}

TEST(Plot, ManyRunsWithLongNamesLeaveTheirLegendInside) {
  Plot plot{.title = "loss", .x_name = "step", .y_name = "loss", .curves = {}};
  for (int i = 0; i < 30; ++i) plot.curves.push_back({std::string(200, 'w'), {{0, 1}, {1, 2}}});
  int rows = 0;
  for (const Label& label : draw(plot).labels) {
    if (label.role != Role::legend) continue;
    ++rows;
    EXPECT_GE(label.x, 76);
    EXPECT_LE(label.x + write(label.text).width * font_size(Role::legend), 960);
    EXPECT_LE(label.y, 540);
  }
  EXPECT_EQ(rows, 21);  // the last one says how many more there are
}

TEST_F(RunsTest, ComparisonNamesTheSettingsThatDiffer) {
  const auto a = make("a", "name: a\ntrainer:\n  learning_rate: 0.1 # default\n  seed: 1\n", {});
  const auto b = make("b", "name: b\ntrainer:\n  learning_rate: 0.2 # --lr\n  seed: 1\nlora:\n  rank: 8\n", {});
  const auto found = differing_settings({a, b});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].key, "trainer.learning_rate");
  EXPECT_EQ(found[0].values, (std::vector<std::optional<std::string>>{"0.1", "0.2"}));
  EXPECT_EQ(found[1].key, "lora.rank");
  EXPECT_EQ(found[1].values.front(), std::nullopt);
}

TEST_F(RunsTest, AGapIsKeptAndAClockThatIsSetBackTurnsNothingAround) {
  const auto line = [](int step, const std::string& loss, const std::string& minute) {
    return fmt::format(R"({{"step":{},"loss":{},"time":"2026-01-01T00:{}:00Z"}})", step, loss, minute);
  };
  const fs::path folder = make("a", "", {started, line(1, "4", "10"), line(2, "null", "20"), line(3, "nan", "05"), line(4, "2", "30")});
  const Curve curve = read_curve(folder, "loss", Axis::hours);
  ASSERT_EQ(curve.points.size(), 3u);  // "nan" is no number of JSON's
  EXPECT_TRUE(std::isnan(curve.points[1].y));
  EXPECT_TRUE(std::is_sorted(curve.points.begin(), curve.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
  EXPECT_EQ(smoothed(curve.points, 0.5)[2].y, (0.25 * 4 + 0.5 * 2) / 0.75);
  std::vector<Point> many(10000, {0, 1});
  many[5000].y = NAN;
  const auto few = thinned(many, 100);
  EXPECT_LT(few.size(), 150u);
  EXPECT_EQ(std::count_if(few.begin(), few.end(), [](const Point& point) { return std::isnan(point.y); }), 1);
}

TEST_F(RunsTest, MoreRunsThanThereIsRoomForHaveALineEach) {
  std::vector<std::unique_ptr<LiveRun>> live;
  std::vector<const LiveRun*> all;
  for (int i = 0; i < 9; ++i) {
    live.push_back(std::make_unique<LiveRun>(make(fmt::format("run-{}", i), "", {started, model, step_line(1, 4)})));
    live.back()->poll();
    all.push_back(live.back().get());
  }
  for (const int height : {24, 6}) {
    const auto lines = base::split(show::draw(all, {.width = 40, .height = height}), '\n');
    ASSERT_EQ(lines.size(), std::min<std::size_t>(9, static_cast<std::size_t>(height)));
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_TRUE(lines[i].starts_with(fmt::format("run-{}  ", i))) << lines[i];
    for (const std::string& line : lines) EXPECT_LE(line.size(), 40u) << line;
    if (height == 6) EXPECT_EQ(lines.back(), "and 4 more runs");
  }
}

TEST_F(RunsTest, AFailedRunSaysWhyAndANarrowWindowKeepsTheNumbers) {
  const std::string seconds =
      R"(,"rank_seconds":{"data":[0],"forward":[0.1],"backward":[0.2],"communication":[0],"optimizer":[0],"checkpoint":[0],"other":[0]})";
  const fs::path folder = make("a", "", {started, model, step_line(2, 3, seconds)});
  journal::write_ending({folder},
                        {.status = "failed", .exit_code = 6, .rank = 1, .error = "rank 1 was ended by signal 9 (SIGKILL) in step 3"});
  LiveRun live(folder);
  live.poll();
  const std::vector<const LiveRun*> all = {&live};
  EXPECT_NE(show::draw(all, {.width = 80}).find("\nrank 1 was ended by signal 9 (SIGKILL) in step 3\n"), std::string::npos);
  EXPECT_TRUE(show::progress_line(live.view()).ends_with("  rank 1 was ended by signal 9 (SIGKILL) in step 3"));
  const std::string narrow = show::draw(all, {.width = 40});
  EXPECT_NE(narrow.find("\nrank 1 was ended by signal 9 (SIGKILL)\nin step 3\n"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("0.300 s"), std::string::npos) << narrow;  // behind a shorter bar
  journal::write_ending({folder}, {.status = "complete"});
  live.poll();
  EXPECT_TRUE(base::split(show::draw(all, {.width = 80}), '\n')[1].starts_with('[')) << "nothing stands between name and bar";
  fs::remove(folder / "end.json");
  live.poll();
  EXPECT_NE(show::draw(all, {.width = 120}).find("Its launcher ended without a word"), std::string::npos);
}

TEST_F(RunsTest, TheScreenFitsItsWindowAndShowsWhereTimeGoes) {
  const std::string seconds =
      R"(,"rank_seconds":{"data":[0,0.2],"forward":[0.1,0.1],"backward":[0.2,0.2],"communication":[0.2,0],"optimizer":[0,0],"checkpoint":[0,0],"other":[0,0]})";
  const fs::path folder = make("a", "", {started, model, step_line(1, 4), step_line(2, 3, seconds)});
  fs::create_directories(folder / "ranks");
  std::ofstream(folder / "ranks" / "0.log") << "first\n\033[31mred\n";
  fs::create_directories(folder / "monitor");
  std::ofstream(folder / "monitor" / "machine-0.jsonl")
      << R"({"event":"machine","job":"x","gpus":[{"gpu":3,"ranks":[1]}],"ranks":[]})"
         "\n"
      << R"({"seconds":1,"gpus":[{"gpu":3,"utilization":0.5,"temperature":61}],"ranks":[]})"
         "\n";
  LiveRun live(folder);
  live.poll();
  const std::vector<const LiveRun*> all = {&live};
  const std::string text = show::draw(all, {.width = 100, .height = 40});
  EXPECT_NE(text.find("2/40"), std::string::npos) << text;
  EXPECT_NE(text.find("ffffffbbbbbbbbbbbbbcccccccccccc"), std::string::npos) << text;  // rank 0 waits
  EXPECT_NE(text.find("ddddddddddddd"), std::string::npos) << text;                    // for rank 1's batches
  EXPECT_NE(text.find("GPU 3  50%  61 C"), std::string::npos) << text;
  EXPECT_NE(text.find(".[31mred"), std::string::npos) << text;  // a log steers no terminal
  EXPECT_EQ(text.find('\033'), std::string::npos);
  for (const int width : {20, 47, 80}) {
    for (const int height : {1, 5, 12}) {
      const std::string small = show::draw(all, {.width = width, .height = height});
      EXPECT_LE(std::count(small.begin(), small.end(), '\n'), height - 1);
      std::size_t columns = 0;
      for (const char c : small) {
        columns = c == '\n' ? 0 : columns + ((static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0);
        ASSERT_LE(columns, static_cast<std::size_t>(width)) << small;
      }
    }
  }
  // What is written while it looks.
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << step_line(3, 2.5) << "\n";
  live.poll();
  EXPECT_EQ(live.view().step, 3);
}

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  show::Table table({"run", "loss"});
  table.row({"a long name", "▁▂"});
  table.row({"b", "1"});
  EXPECT_EQ(table.text(), "run          loss\na long name  ▁▂\nb            1\n");
}

TEST(Table, InANarrowWindowItLeavesColumnsOut) {
  show::Table table({"run", "state", "loss", "began"});
  table.row({"a very long name", "failed", "▁▂▃", "2026"});
  EXPECT_EQ(table.text(0, {3, 2}), table.text());
  EXPECT_EQ(table.text(40, {3, 2}), table.text());
  EXPECT_EQ(table.text(33, {3, 2}), "run               state   loss\na very long name  failed  ▁▂▃\n");
  EXPECT_EQ(table.text(24, {3, 2}), "run               state\na very long name  failed\n");
  EXPECT_EQ(table.text(24, {2, 3}), "run               state\na very long name  failed\n");
  EXPECT_EQ(table.text(20, {3, 2}), "run           state\na very lon..  failed\n");
  EXPECT_EQ(table.text(3, {3, 2}), "run       state\na very..  failed\n");  // a name stays one
}

TEST(Sparkline, IsTypedWhereATerminalKnowsAsciiAlone) {
  const std::vector<double> values = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(show::sparkline(values), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(show::sparkline(values, false), "_.:-=+*#");
}

}  // namespace
}  // namespace lockstep::runs
