// Launchers that meet: proofs, frames that are tampered with, strangers, and what keeps machines from being one run.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "front/job/identity.h"
#include "front/launch/meet/gathering.h"
#include "front/launch/meet/links.h"
#include "front/launch/meet/pack.h"
#include "support/temporary_folder.h"

namespace lockstep::launch::meet {
namespace {

constexpr const char* secret = "a secret of this test";

struct Pair {
  explicit Pair(const std::string& theirs = secret) {
    int files[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, files), 0);
    first = std::make_unique<Channel>(Socket(files[0]), Channel::Side::first, secret);
    second = std::make_unique<Channel>(Socket(files[1]), Channel::Side::second, theirs);
  }
  void exchange() const {
    for (int i = 0; i < 4; ++i) {
      for (Channel* one : {first.get(), second.get()}) {
        one->write();
        one->read();
      }
    }
  }
  std::unique_ptr<Channel> first, second;
};

ChannelError::Why reason(const std::function<void()>& act) {
  try {
    act();
  } catch (const ChannelError& error) {
    return error.why;
  }
  ADD_FAILURE() << "nothing was wrong";
  return ChannelError::Why::closed;
}

TEST(Channel, BothProveThemselvesAndFramesArriveInOrder) {
  const Pair pair;
  pair.exchange();
  ASSERT_TRUE(pair.first->established() && pair.second->established());
  const std::string large(Channel::most_bytes, 'x');
  pair.second->send(7, "hello");
  pair.second->send(8, "");
  pair.first->send(9, large);
  for (int i = 0; i < 2000 && pair.first->has_to_write(); ++i) pair.exchange();
  pair.exchange();
  const auto one = pair.first->next(), two = pair.first->next(), three = pair.second->next();
  ASSERT_TRUE(one && two && three);
  EXPECT_EQ(one->kind, 7);
  EXPECT_EQ(one->body, "hello");
  EXPECT_EQ(two->body, "");
  EXPECT_EQ(three->body, large);
}

TEST(Channel, AnotherSecretIsRefused) {
  const Pair pair("another secret of this test");
  EXPECT_EQ(reason([&] { pair.exchange(); }), ChannelError::Why::refused);
  EXPECT_FALSE(pair.first->established());
  EXPECT_FALSE(pair.second->established());
}

// What the first side says, and what it thinks of an answer of our making.
struct Stranger {
  Stranger() {
    int files[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, files), 0);
    channel = std::make_unique<Channel>(Socket(files[0]), Channel::Side::first, secret);
    us = Socket(files[1]);
    channel->write();
    greeting.resize(1000);
    greeting.resize(static_cast<std::size_t>(::recv(us.file(), greeting.data(), greeting.size(), 0)));
  }
  void answer(const std::string& bytes) const {
    EXPECT_EQ(::send(us.file(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    channel->read();
  }
  std::unique_ptr<Channel> channel;
  Socket us;
  std::string greeting;
};

TEST(Channel, StrangersLearnNothingAndGetNowhere) {
  const Stranger other;
  EXPECT_EQ(other.greeting.size(), 52) << "a name and random bytes";
  EXPECT_EQ(reason([&] { other.answer("GET / HTTP/1.1\r\n"); }), ChannelError::Why::other_program);
  const Stranger mirror;  // sends back what it was sent
  EXPECT_EQ(reason([&] { mirror.answer(mirror.greeting + std::string(32, 'x')); }), ChannelError::Why::refused);
  const Stranger silent;
  silent.answer(silent.greeting.substr(0, 30));
  EXPECT_FALSE(silent.channel->established());
}

TEST(Channel, ChangedFramesAreNoticed) {
  // The second side's bytes pass through our hands.
  int left[2], right[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, left), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, right), 0);
  Channel first(Socket(left[0]), Channel::Side::first, secret), second(Socket(right[0]), Channel::Side::second, secret);
  const auto carry = [](int from, int to, int flip) {
    char bytes[4096];
    const ssize_t size = ::recv(from, bytes, sizeof bytes, 0);
    if (size <= 0) return std::string();
    if (flip >= 0) bytes[flip] = static_cast<char>(bytes[flip] ^ 1);
    EXPECT_EQ(::send(to, bytes, static_cast<std::size_t>(size), 0), size);
    return std::string(bytes, static_cast<std::size_t>(size));
  };
  for (int i = 0; i < 3; ++i) {
    first.write();
    carry(left[1], right[1], -1);
    second.read();
    second.write();
    carry(right[1], left[1], -1);
    first.read();
  }
  ASSERT_TRUE(first.established() && second.established());
  second.send(1, "pay 10");
  second.write();
  const std::string sent = carry(right[1], left[1], -1);
  first.read();
  EXPECT_EQ(first.next()->body, "pay 10");
  ASSERT_EQ(::send(left[1], sent.data(), sent.size(), 0), static_cast<ssize_t>(sent.size()));  // once more
  EXPECT_EQ(reason([&] { first.read(); }), ChannelError::Why::forged);
  const int file = left[1], other = right[1];
  ::close(file);
  ::close(other);
}

TEST(Links, CarryFramesAndStreams) {
  Links hub(secret, 30), spoke(secret, 30);
  Socket listener = listen_at(loopback(0), 8);
  const int port = local_address(listener).port();
  hub.listen(std::move(listener));
  std::string error;
  const int link = spoke.add(connect_within(loopback(port), 1, error));
  Socket store = listen_at(loopback(0), 8);
  hub.end_streams_at(local_address(store).port());

  std::vector<Links::Event> heard;
  const auto wait_for = [&](Links& links, Links::Event::Kind kind) {
    for (int i = 0; i < 4000; ++i) {
      for (const auto& event : links.take()) heard.push_back(event);
      if (!heard.empty() && heard.back().kind == kind) return true;
      ::usleep(5000);
    }
    return false;
  };
  ASSERT_TRUE(wait_for(spoke, Links::Event::Kind::joined));
  spoke.send(link, 3, "facts");
  ASSERT_TRUE(wait_for(hub, Links::Event::Kind::frame));
  EXPECT_EQ(heard.back().frame.body, "facts");

  // A rank's connection to its launcher's port ends at the store, far away.
  const Socket rank = connect_within(loopback(spoke.begin_streams_over(link)), 1, error);
  ASSERT_TRUE(rank.open());
  Socket served;
  for (int i = 0; i < 4000 && !served.open(); ++i, ::usleep(5000)) served = accept_from(store);
  ASSERT_TRUE(served.open());
  const std::string sent(300'000, 'k');
  std::string got;
  std::size_t out = 0;
  for (int i = 0; i < 10000 && got.size() < sent.size(); ++i) {
    const ssize_t now = ::send(rank.file(), sent.data() + out, sent.size() - out, MSG_NOSIGNAL);
    if (now > 0) out += static_cast<std::size_t>(now);
    char bytes[65536];
    const ssize_t came = ::recv(served.file(), bytes, sizeof bytes, 0);
    if (came > 0)
      got.append(bytes, static_cast<std::size_t>(came));
    else
      ::usleep(2000);
  }
  EXPECT_EQ(got, sent);

  spoke.drop(link);
  EXPECT_TRUE(wait_for(hub, Links::Event::Kind::left));
}

Facts machine(int node, int ranks, journal::Identity identity) {
  return {.node = node,
          .nodes = 3,
          .ranks = ranks,
          .host = "box" + std::to_string(node),
          .folders = {{"--output", "/runs/x", true}},
          .identity = std::move(identity)};
}

TEST(Gathering, CountsAddUp) {
  const std::map<int, Facts> here = {{0, machine(0, 2, {})}, {1, machine(1, 1, {})}, {2, machine(2, 4, {})}};
  for (const auto& [node, first] : std::map<int, int>{{0, 0}, {1, 2}, {2, 3}}) {
    EXPECT_EQ(agree(here, node).first_rank, first);
    EXPECT_EQ(agree(here, node).world_size, 7);
  }
  EXPECT_FALSE(find_refusal({.nodes = 3}, here, false));
}

TEST(Gathering, SaysWhoIsMissing) {
  std::map<int, Facts> here = {{0, machine(0, 1, {})}};
  EXPECT_EQ(who_is_missing({.nodes = 3}, here), "1 of 3 machines is here; missing node ranks 1 and 2");
  here[1] = machine(1, 1, {});
  EXPECT_EQ(who_is_missing({.nodes = 3}, here), "2 of 3 machines are here; missing node rank 2");
  EXPECT_EQ(who_is_missing({.nodes = 3, .ranks_are_machines = true}, here), "2 of 3 ranks are here; missing rank 2");
}

TEST(Gathering, NamesWhatDiffers) {
  std::map<int, Facts> here = {{0, machine(0, 1, {{"trainer.seed", "1"}, {"the build", "a"}})},
                               {1, machine(1, 1, {{"trainer.seed", "2"}, {"the build", "a"}, {"more", "x"}})}};
  auto refusal = find_refusal({.nodes = 2}, here, false);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->exit_code, 2);
  for (const char* words :
       {"trainer.seed is 1 on machine 0 (box0) and 2 on machine 1 (box1).", "more is not there on machine 0 (box0) and x on"})
    EXPECT_NE(refusal->text.find(words), std::string::npos) << refusal->text;
  EXPECT_EQ(refusal->text.find("the build"), std::string::npos);

  here[1] = machine(1, 1, here[0].identity);
  here[1].folders[0] = {"--output", "/other/x", false};
  refusal = find_refusal({.nodes = 2}, here, false);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->exit_code, 3);
  EXPECT_NE(refusal->text.find("/runs/x on machine 0 (box0) is not /other/x on machine 1 (box1)"), std::string::npos) << refusal->text;
}

TEST(Messages, ComeBackAsTheyWent) {
  const std::int64_t now = base::now_ns();
  Standing standing;
  journal::PageView page;
  page.rank = 3;
  page.phase = journal::Phase::reducing;
  page.progress_ns = now - 5;
  page.failure = "text";
  journal::Operation operation{};
  std::strcpy(operation.what, "gradients");
  operation.sequence = 9;
  page.operations.push_back(operation);
  standing.pages.push_back(page);
  RankEnd rank;
  rank.rank = 3;
  rank.end = End{0, 11};
  rank.log = {"one", "two"};
  rank.page = page;
  standing.ends.push_back(rank);
  const Standing back = unpack_standing(pack(standing, now), now + 1000);  // another clock
  ASSERT_EQ(back.pages.size(), 1);
  EXPECT_EQ(back.pages[0].progress_ns, now + 1000 - 5);
  EXPECT_EQ(back.pages[0].phase, journal::Phase::reducing);
  EXPECT_STREQ(back.pages[0].operations.at(0).what, "gradients");
  EXPECT_EQ(back.ends.at(0).end->signal, 11);
  EXPECT_EQ(back.ends.at(0).log, rank.log);
  EXPECT_FALSE(back.all_ended);

  const Ending ending{.outcome = {.kind = Outcome::Kind::failed, .report = {.exit_code = 5, .rank = 2, .headline = "h", .text = "t"}},
                      .restarts = true};
  const Ending ended = Ending::unpack(ending.pack());
  EXPECT_EQ(ended.outcome.kind, Outcome::Kind::failed);
  EXPECT_EQ(ended.outcome.report.exit_code, 5);
  EXPECT_EQ(ended.outcome.report.rank, 2);
  EXPECT_TRUE(ended.restarts);

  const std::string bytes = pack(standing, now);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_THROW(unpack_standing(bytes.substr(0, cut), now), Malformed) << cut;
  EXPECT_THROW(Facts::unpack(std::string(8 * 4, '\x7f')), Malformed);
}

TEST(Identity, SurvivesAsText) {
  const journal::Identity identity = {{"a", "1"}, {"odd\tname", "two\nlines \\ and\ta tab"}, {"empty", ""}};
  const journal::Identity back = journal::identity_from_text(journal::to_text(identity));
  EXPECT_TRUE(journal::differences(identity, back, "x", "y").empty());
  EXPECT_EQ(back.size(), 3);
}

// Machines may know a model, tokens and a checkpoint by other paths; what lies there may not differ.
TEST(Identity, IsOfContentsNotOfPaths) {
  const support::TemporaryFolder folder;
  const auto settings_of = [&](const std::string& name, const std::string& weights, const std::string& tokens, const char* resume) {
    const std::filesystem::path model = folder.path() / name;
    std::filesystem::create_directory(model);
    std::ofstream(model / "model.safetensors") << weights;
    std::ofstream(folder.path() / (name + ".bin")) << tokens;
    config::RunConfig config;
    config.model.path = model.string();
    config.model.name = name;  // as without model.name
    config.data.path = model.string() + ".bin";
    config.checkpoint.resume = resume;
    return job::identity_of(config, {});
  };
  const journal::Identity first = settings_of("a", "weights", "tokens", "/runs/x/checkpoints/step-000004");
  EXPECT_TRUE(journal::differences(first, settings_of("b", "weights", "tokens", "/mnt/step-000004/"), "x", "y").empty());
  const std::vector<std::string> found = journal::differences(first, settings_of("c", "weightz", "tokenz", "/mnt/step-000008"), "x", "y");
  ASSERT_EQ(found.size(), 3);
  for (const char* key : {"model.path (model.safetensors) is 7 bytes", "data.path is 6 bytes", "checkpoint.resume is step-000004 on x"})
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const std::string& line) { return line.starts_with(key); })) << key;
}

}  // namespace
}  // namespace lockstep::launch::meet
