// Readings of a machine, what they say of a straggler, and how Prometheus and files hear of them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "front/monitor/lines.h"
#include "front/monitor/monitor.h"
#include "front/monitor/prometheus.h"
#include "front/monitor/stragglers.h"
#include "support/temporary_folder.h"

namespace lockstep::monitor {
namespace {

using journal::PartSeconds;

// data, forward, backward, communication, optimizer, checkpoint, other
const PartSeconds quick = {0, 1, 2, 1.2, 0.1, 0, 0}, slow_data = {1.2, 1, 2, 0, 0.1, 0, 0}, slow_backward = {0, 1, 3.2, 0, 0.1, 0, 0};

GpuNow gpu(int rank, int clock_mhz, std::vector<launch::Throttle> throttled = {}, int others = 0) {
  GpuNow now{.number = rank, .ranks = {rank}, .reading = {}, .nvlink_sent_per_s = {}, .nvlink_received_per_s = {}, .others = others};
  now.reading.sm_clock_mhz = clock_mhz;
  now.reading.temperature_c = 70 + rank;
  now.reading.throttled = std::move(throttled);
  return now;
}

RankNow process(int rank, double starved) {
  return {.rank = rank, .cpu = 1, .starved = starved, .memory_bytes = 1, .phase = "forward", .step = 1};
}

TEST(Stragglers, AreNamedWithTheirReason) {
  using launch::Throttle;
  struct Case {
    std::string what;
    PartSeconds slow;
    Reading reading;
    Reason reason;
    std::string words;
  };
  for (const Case& c : std::vector<Case>{
           {"late batches", slow_data, {}, Reason::data, "data.workers"},
           {"a lower clock",
            slow_backward,
            {.gpus = {gpu(0, 1900), gpu(1, 900)}, .ranks = {}},
            Reason::clock,
            "900 MHz, the others at 1900"},
           {"heat",
            slow_backward,
            {.gpus = {gpu(0, 1900), gpu(1, 900, {Throttle::software_thermal})}, .ranks = {}},
            Reason::temperature,
            "71 C"},
           {"power",
            slow_backward,
            {.gpus = {gpu(0, 1900), gpu(1, 1200, {Throttle::power_cap})}, .ranks = {}},
            Reason::power,
            "power limit"},
           {"all at their power limit, one with a lower clock",
            slow_backward,
            {.gpus = {gpu(0, 1900, {Throttle::power_cap}), gpu(1, 1200, {Throttle::power_cap})}, .ranks = {}},
            Reason::clock,
            "1200 MHz"},
           {"someone else's process",
            slow_backward,
            {.gpus = {gpu(0, 1900), gpu(1, 1900, {}, 1)}, .ranks = {}},
            Reason::other_process,
            "GPU 1"},
           {"no core free", slow_backward, {.gpus = {}, .ranks = {process(0, 0.01), process(1, 0.4)}}, Reason::cpu, "40%"},
           {"nothing to see",
            slow_backward,
            {.gpus = {gpu(0, 1900), gpu(1, 1890)}, .ranks = {process(0, 0), process(1, 0)}},
            Reason::unknown,
            "nothing"},
       }) {
    Stragglers stragglers;
    stragglers.hear(c.reading);
    const std::vector<PartSeconds> ranks = {quick, c.slow};
    EXPECT_FALSE(stragglers.hear(ranks, 1)) << c.what << ": one window may be chance";
    const auto verdict = stragglers.hear(ranks, 1);
    ASSERT_TRUE(verdict) << c.what;
    EXPECT_EQ(verdict->straggler.rank, 1) << c.what;
    EXPECT_EQ(verdict->reason, c.reason) << c.what << ": " << verdict->text;
    EXPECT_NE(verdict->text.find(c.words), std::string::npos) << verdict->text;
    EXPECT_NE(verdict->text.find("rank 1 holds the others up by 1200 ms a step"), std::string::npos) << verdict->text;
    EXPECT_FALSE(stragglers.hear(ranks, 1)) << c.what << ": once";
  }
}

TEST(Stragglers, AreForgottenAfterTwoQuietWindowsAndTheLastToChangeIsNoStraggler) {
  Stragglers stragglers;
  const std::vector<PartSeconds> first = {quick, slow_data}, second = {slow_data, quick}, alike = {quick, quick};
  EXPECT_FALSE(stragglers.hear(first, 1));
  EXPECT_FALSE(stragglers.hear(second, 1)) << "who is slowest changes: noise";
  EXPECT_FALSE(stragglers.hear(first, 1));
  EXPECT_TRUE(stragglers.hear(first, 1));
  EXPECT_FALSE(stragglers.hear(alike, 1));
  EXPECT_FALSE(stragglers.hear(alike, 1));
  EXPECT_FALSE(stragglers.hear(first, 1));
  EXPECT_TRUE(stragglers.hear(first, 1)) << "again: said again";
}

TEST(MonitorLines, LeaveOutWhatIsNotKnown) {
  Reading reading{.seconds = 2,
                  .gpus = {gpu(0, 1900, {launch::Throttle::power_cap}),
                           {.number = 1, .ranks = {1}, .reading = {}, .nvlink_sent_per_s = {}, .nvlink_received_per_s = {}}},
                  .ranks = {process(0, 0.25)}};
  const auto json = nlohmann::json::parse(reading_line(reading));
  EXPECT_EQ(json["gpus"][0]["clock_mhz"], 1900);
  EXPECT_EQ(json["gpus"][0]["throttle"], (std::vector<std::string>{std::string(launch::name_of(launch::Throttle::power_cap))}));
  EXPECT_EQ(json["gpus"][1].size(), 2u);  // its number, and that nobody else is there
  EXPECT_EQ(json["ranks"][0]["starved"], 0.25);
}

// The stand-in for the driver's library is chosen by a variable.
TEST(Readings, RanksFindTheirGpusByWhatIsVisibleToThem) {
  const support::TemporaryFolder folder;
  std::ofstream(folder.path() / "gpus") << "gpus 3\n*.name NVIDIA H200\n*.memory 150000000000\n*.used 50000000000\n*.utilization 97\n"
                                           "*.sm_clock_max 1980\n2.temperature 88\n*.throttle 0x1\n2.throttle 0x20\n*.link_sent 10\n"
                                           "*.link_received 20\n*.link.0 1\n2.processes 4711 4712 4713\n0.processes 4714\n";
  ::setenv("STUB_NVML", (folder.path() / "gpus").c_str(), 1);
  const auto library = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "stub_nvml" / "libnvidia-ml.so.1";
  auto nvml = std::make_unique<launch::Nvml>(library.c_str());
  ASSERT_TRUE(nvml->started()) << library;
  const std::vector<RankProcess> ranks = {
      {0, ::getpid(), "cuda:0"}, {1, ::getpid(), "cuda:1"}, {2, ::getpid(), "cuda:0"}, {3, ::getpid(), "cpu"}};
  const std::vector<UsedGpu> gpus = used_gpus(*nvml, ranks, "2,0");
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].number, 2);
  EXPECT_EQ(gpus[0].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(gpus[1].number, 0);
  EXPECT_EQ(gpus[1].max_clock_mhz, 1980);
  Reader reader(std::move(nvml));
  reader.read(ranks, gpus);
  const Reading reading = reader.read(ranks, gpus);
  ::unsetenv("STUB_NVML");
  ASSERT_EQ(reading.gpus.size(), 2u);
  const auto hot = std::find_if(reading.gpus.begin(), reading.gpus.end(), [](const GpuNow& one) { return one.number == 2; });
  EXPECT_EQ(hot->reading.temperature_c, 88);
  EXPECT_EQ(hot->others, 1);  // three processes, two of them ours
  EXPECT_EQ(hot->reading.throttled, std::vector{launch::Throttle::software_thermal});
  ASSERT_EQ(reading.ranks.size(), 4u);
  EXPECT_TRUE(reading.ranks[3].cpu);
  const std::string exposed = prometheus_text("r\"un", 10, nullptr, reading);
  EXPECT_NE(exposed.find("lockstep_gpu_temperature_celsius{run=\"r\\\"un\",gpu=\"2\"} 88\n"), std::string::npos) << exposed;
  EXPECT_NE(exposed.find("lockstep_gpu_throttled{run=\"r\\\"un\",gpu=\"0\"} 0\n"), std::string::npos) << exposed;
}

std::string fetch(int port, const std::string& request) {
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::send(client, request.data(), request.size(), MSG_NOSIGNAL);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::recv(client, buffer, sizeof buffer, 0)) > 0;) text.append(buffer, static_cast<std::size_t>(got));
  ::close(client);
  return text;
}

TEST(Endpoint, AnswersWhoAsksAndOutlivesWhoDoesNot) {
  Endpoint endpoint(0, [] { return "lockstep_loss 1\n"; });
  EXPECT_TRUE(fetch(endpoint.port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("\r\n\r\nlockstep_loss 1\n"));
  EXPECT_TRUE(fetch(endpoint.port(), "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  EXPECT_EQ(fetch(endpoint.port(), std::string(100000, 'x')), "");
  EXPECT_TRUE(fetch(endpoint.port(), "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_THROW(Endpoint(endpoint.port(), [] { return ""; }), base::UserError);
}

TEST(Monitor, WritesAMachineLineAndReadingsOfItsRanks) {
  const support::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "monitor" / "machine-2.jsonl";
  std::vector<std::string> lines;
  {
    Monitor monitor({.folder = {folder.path()}, .facts = {.host = "box", .job = "j", .machine = 2, .every_s = 0.05}});
    monitor.rank_started({.rank = 4, .local_rank = 0, .device = "cpu"}, ::getpid());
    journal::PageView page;
    page.rank = 4;
    page.step = 12;
    page.phase = journal::Phase::backward;
    monitor.see(std::vector{page});
    const std::int64_t begun = base::now_ns();
    for (; lines.size() < 4 && base::seconds_since(begun) < 60; std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      lines = std::filesystem::exists(file) ? base::split(base::read_text(file), '\n') : lines;
  }
  ASSERT_GE(lines.size(), 4u) << "with what comes after the last line's end";
  const auto machine = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(machine["event"], "machine");
  EXPECT_EQ(machine["ranks"][0]["pid"], ::getpid());
  const auto reading = nlohmann::json::parse(lines[2]);
  EXPECT_EQ(reading["ranks"][0]["phase"], "backward");
  EXPECT_EQ(reading["ranks"][0]["step"], 12);
  EXPECT_GT(reading["ranks"][0]["memory_bytes"], 1000000);
  EXPECT_TRUE(reading["ranks"][0].contains("cpu"));
}

}  // namespace
}  // namespace lockstep::monitor
