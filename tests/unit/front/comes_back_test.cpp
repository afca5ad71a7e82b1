// Machine 0 and machines whose connection breaks: a launcher that comes again is known, and is no second machine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <future>

#include "base/clock.h"
#include "front/launch/meet/hub.h"

namespace lockstep::launch::meet {
namespace {

constexpr const char* shared_secret = "a secret that both sides know";

struct Deaf : Observer {
  void tick(std::span<const journal::PageView>) override {}
  void say(std::string_view) override {}
};

// What a machine's launcher says and hears over one connection, by hand; the connection never ends by itself.
struct Caller {
  Caller(int port, std::string launcher, int node = 1, int nodes = 2)
      : facts{.node = node, .nodes = nodes, .host = "box" + std::to_string(node), .launcher = std::move(launcher)},
        links(shared_secret, 60) {
    std::string error;
    link = links.add(connect_within(loopback(port), 5, error));
  }
  void answer(const std::string& file) {
    facts.answers = file;
    links.send(link, static_cast<std::uint8_t>(Say::facts), facts.pack());
  }
  // The next frame of this kind; questions are answered meanwhile.
  std::optional<Frame> wait_for(Say kind, const std::function<void()>& meanwhile = {}) {
    for (const std::int64_t begun = base::now_ns(); base::seconds_since(begun) < 20; ::usleep(5000)) {
      if (meanwhile) meanwhile();
      std::optional<Frame> found;
      for (const Links::Event& event : links.take()) {
        if (event.kind != Links::Event::Kind::frame) continue;
        if (event.frame.kind == static_cast<std::uint8_t>(kind)) found = event.frame;
        if (event.frame.kind == static_cast<std::uint8_t>(Say::welcome)) answer(Welcome::unpack(event.frame.body).file);
      }
      if (found) return found;
    }
    return std::nullopt;
  }
  Facts facts;
  Links links;
  int link = -1;
};

struct Meeting {
  explicit Meeting(int nodes) : nodes(nodes) {}
  static int free_port() {
    const Socket probe = listen_at(loopback(0), 1);
    return local_address(probe).port();
  }
  std::future<Gathered> gather(int restart) {
    const Facts mine{.node = 0, .nodes = nodes, .host = "box0"};
    return std::async(std::launch::async, [=, this] { return hub.gather(mine, restart, false, deaf, stop); });
  }
  int nodes, port = free_port();
  Hub hub{{.node = 0,
           .nodes = nodes,
           .master_addr = "127.0.0.1",
           .master_port = port,
           .timeout_s = 60,
           .secret = shared_secret,
           .on_one_host = true}};
  Deaf deaf;
  StopWish stop;
};

TEST(ComesBack, WhileMachinesMeetItTakesItsOwnPlaceAgain) {
  Meeting meeting(3);
  auto gathered = meeting.gather(0);
  Caller before(meeting.port, "one", 1, 3);
  ASSERT_TRUE(before.wait_for(Say::waiting)) << "it is here, and another is not";
  Caller twin(meeting.port, "another", 1, 3);
  const auto refused = twin.wait_for(Say::refused);
  ASSERT_TRUE(refused);
  EXPECT_NE(Refusal::unpack(refused->body).text.find("machine 1 (box1) is here already"), std::string::npos);
  Caller after(meeting.port, "one", 1, 3);
  ASSERT_TRUE(after.wait_for(Say::welcome));
  after.answer("of an earlier meeting");  // passed over: other folders may have been looked into
  Caller last(meeting.port, "two", 2, 3);
  ASSERT_TRUE(last.wait_for(Say::agreed));
  const auto agreed = after.wait_for(Say::agreed);
  ASSERT_TRUE(agreed);
  EXPECT_EQ(Agreement::unpack(agreed->body).first_rank, 1);
  EXPECT_EQ(gathered.get().agreement->world_size, 3);
}

TEST(ComesBack, WhileTheRunIsUnderWayItIsAwaitedAtTheNextMeeting) {
  Meeting meeting(2);
  auto gathered = meeting.gather(0);
  Caller before(meeting.port, "one");
  ASSERT_TRUE(before.wait_for(Say::agreed));
  gathered.get();

  Peers::News news;
  const auto look = [&] { news = meeting.hub.exchange({}); };
  Caller twin(meeting.port, "another");
  const auto refused = twin.wait_for(Say::refused, look);
  ASSERT_TRUE(refused);
  EXPECT_NE(Refusal::unpack(refused->body).text.find("is under way, and all its machines are here already"), std::string::npos);
  EXPECT_EQ(news.lost, "");

  Caller after(meeting.port, "one");
  ASSERT_TRUE(after.wait_for(Say::welcome, look));
  for (const std::int64_t begun = base::now_ns(); news.lost.empty() && base::seconds_since(begun) < 20; ::usleep(5000)) look();
  EXPECT_EQ(news.lost, "machine 1 (box1) has lost its connection and made a new one");
  meeting.hub.conclude({.outcome = {.kind = Outcome::Kind::failed}, .restarts = true});
  auto again = meeting.gather(1);
  const auto agreed = after.wait_for(Say::agreed);
  ASSERT_TRUE(agreed);
  EXPECT_EQ(Agreement::unpack(agreed->body).restart, 1);
  again.get();
}

}  // namespace
}  // namespace lockstep::launch::meet
