// One owner a folder: who is refused, who takes over, and how the one that lost it learns of it.
#include "journal/lease.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "support/temporary_folder.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;
using Held = std::unique_ptr<Lease>;

Lease::Options options(ProcessIdentity self = this_process(), LeaseTimes times = {.renew_s = 0.05, .expire_s = 0.6}) {
  return {.what = "the run folder", .fix = "another --name", .times = times, .self = std::move(self)};
}

ProcessIdentity elsewhere(const char* host = "box2") {
  ProcessIdentity other = this_process();
  other.host = host;
  other.boot = host;
  return other;
}

// A process of this machine that has ended, waited for or not.
ProcessIdentity ended_process(bool reaped) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  ProcessIdentity other = this_process();
  other.pid = pid;
  const std::string stat = base::read_text("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream words(stat.substr(stat.rfind(')') + 2));
  std::string word;
  for (int field = 3; field <= 22; ++field) words >> word;
  other.start_ticks = std::stoll(word);
  ::kill(pid, SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  if (reaped) ::waitpid(pid, nullptr, 0);
  return other;
}

std::string refusal(const fs::path& folder, const Lease::Options& how) {
  try {
    const Lease lease(folder, how);
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::usage);
    return error.what();
  }
  return "";
}

// Leaves a lease as an owner does that was cut off from everything: nobody renews it, nobody removes it.
void leave_behind(const fs::path& folder, const ProcessIdentity& owner) {
  std::string text;
  {
    const Lease lease(folder, options(owner, {.renew_s = 1000, .expire_s = 0.01}));
    text = base::read_text(folder / "lease");
  }
  std::ofstream(folder / "lease") << text;
}

TEST(Lease, AnOwnerThatIsAliveHereIsNamedAtOnce) {
  const support::TemporaryFolder folder;
  const Lease lease(folder.path() / "run", options());
  const std::int64_t start = base::now_ns();
  const std::string text = refusal(folder.path() / "run", options(this_process(), {.renew_s = 5, .expire_s = 60}));
  EXPECT_LT(base::seconds_since(start), 5);
  const std::string who = fmt::format("is in use by process {} on {}, since 2", ::getpid(), this_process().host);
  EXPECT_NE(text.find(who), std::string::npos) << text;
  EXPECT_NE(text.find("choose another --name"), std::string::npos) << text;
}

TEST(Lease, GivenBackItIsFree) {
  const support::TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) const Lease lease(folder.path(), options());
  EXPECT_TRUE(fs::is_empty(folder.path())) << "nothing is left behind";
}

TEST(Lease, AProcessThatIsGoneLosesItAtOnce) {
  for (const bool reaped : {true, false}) {
    const support::TemporaryFolder folder;
    const ProcessIdentity gone = ended_process(reaped);
    leave_behind(folder.path(), gone);
    const std::int64_t start = base::now_ns();
    const Lease lease(folder.path(), options(this_process(), {.renew_s = 5, .expire_s = 60}));
    EXPECT_LT(base::seconds_since(start), 10) << (reaped ? "gone" : "a zombie");
    if (!reaped) ::waitpid(static_cast<pid_t>(gone.pid), nullptr, 0);
  }
  // Its number has been given to another process since.
  const support::TemporaryFolder folder;
  ProcessIdentity reused = this_process();
  reused.start_ticks -= 1;
  leave_behind(folder.path(), reused);
  const Lease lease(folder.path(), options(this_process(), {.renew_s = 5, .expire_s = 60}));
}

TEST(Lease, AnOwnerElsewhereIsWatchedBeforeItLosesIt) {
  const support::TemporaryFolder folder;
  leave_behind(folder.path(), elsewhere());
  std::string said;
  Lease::Options how = options();
  how.say = [&](std::string_view line) { said = line; };
  const std::int64_t start = base::now_ns();
  const Lease lease(folder.path(), how);
  EXPECT_GE(base::seconds_since(start), how.times.expire_s);
  EXPECT_NE(said.find("was left by process"), std::string::npos) << said;
  EXPECT_NE(said.find("on box2, since"), std::string::npos) << said;
}

TEST(Lease, AnOwnerElsewhereThatRenewsKeepsIt) {
  const support::TemporaryFolder folder;
  const Lease lease(folder.path(), options(elsewhere()));
  const std::string text = refusal(folder.path(), options(this_process(), {.renew_s = 0.4, .expire_s = 60}));
  EXPECT_NE(text.find("on box2"), std::string::npos) << text;
  EXPECT_NE(text.find("which renewed it just now"), std::string::npos) << text;
}

TEST(Lease, TheSameNumberInAnotherNamespaceIsAnotherProcess) {
  const support::TemporaryFolder folder;
  ProcessIdentity contained = this_process();
  contained.pid_namespace = "pid:[1]";
  contained.pid = 999999999;
  const Lease lease(folder.path(), options(contained));
  const std::string text = refusal(folder.path(), options(this_process(), {.renew_s = 0.4, .expire_s = 60}));
  EXPECT_NE(text.find("which renewed it just now"), std::string::npos) << "it is not taken for gone";
}

TEST(Lease, WhoLostItLearnsWhoHasIt) {
  const support::TemporaryFolder folder;
  Lease slow(folder.path(), options(elsewhere(), {.renew_s = 3, .expire_s = 0.2}));
  EXPECT_TRUE(lease_is(folder.path(), slow.token()));
  const Lease taken(folder.path(), options(elsewhere("box3"), {.renew_s = 0.05, .expire_s = 0.2}));
  EXPECT_FALSE(lease_is(folder.path(), slow.token()));
  EXPECT_TRUE(lease_is(folder.path(), taken.token()));
  const std::int64_t start = base::now_ns();
  while (!slow.lost_to() && base::seconds_since(start) < 20) ::usleep(10'000);
  ASSERT_TRUE(slow.lost_to());
  EXPECT_NE(slow.lost_to()->find("was taken over by process"), std::string::npos) << *slow.lost_to();
  EXPECT_NE(slow.lost_to()->find("on box3"), std::string::npos) << *slow.lost_to();
  EXPECT_FALSE(taken.lost_to());
}

// Its machine stood still while another one took the folder, trained there and ended: no lease is left that could tell it.
TEST(Lease, WhoComesBackAfterTheNextOwnerHasEndedHasLostItToo) {
  const support::TemporaryFolder folder;
  Lease slow(folder.path(), options(elsewhere(), {.renew_s = 3, .expire_s = 0.2}));
  { const Lease taken(folder.path(), options(elsewhere("box3"), {.renew_s = 0.05, .expire_s = 0.2})); }
  EXPECT_FALSE(fs::exists(folder.path() / "lease"));
  EXPECT_FALSE(lease_is(folder.path(), slow.token())) << "its ranks write nothing more";
  const std::int64_t start = base::now_ns();
  while (!slow.lost_to() && base::seconds_since(start) < 20) ::usleep(10'000);
  ASSERT_TRUE(slow.lost_to());
  EXPECT_NE(slow.lost_to()->find("was taken over by a process that has ended since"), std::string::npos) << *slow.lost_to();
  EXPECT_FALSE(fs::exists(folder.path() / "lease")) << "it does not take it back";
}

TEST(Lease, OfManyThatTakeOverOneWins) {
  for (int round = 0; round < 5; ++round) {
    const support::TemporaryFolder folder;
    leave_behind(folder.path(), ended_process(true));
    std::vector<std::future<Held>> takers;
    for (int i = 0; i < 6; ++i) {
      takers.push_back(std::async(std::launch::async, [&folder]() -> Held {
        try {
          return std::make_unique<Lease>(folder.path(), options(this_process(), {.renew_s = 0.05, .expire_s = 60}));
        } catch (const base::UserError&) {
          return nullptr;
        }
      }));
    }
    std::vector<Held> held;
    for (auto& taker : takers) {
      if (Held lease = taker.get()) held.push_back(std::move(lease));
    }
    ASSERT_EQ(held.size(), 1u);
    ::usleep(150'000);
    EXPECT_FALSE(held.front()->lost_to());
    held.clear();
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
}

TEST(Lease, AFileThatSaysNothingIsWatchedToo) {
  const support::TemporaryFolder folder;
  std::ofstream(folder.path() / "lease") << "";
  const std::int64_t start = base::now_ns();
  const Lease lease(folder.path(), options());
  EXPECT_GE(base::seconds_since(start), 0.6);
}

// What is at its place opens, and cannot be read: as on a network disk whose server has come back.
TEST(Lease, AFileThatCannotBeReadIsNotLost) {
  const support::TemporaryFolder folder;
  const Lease lease(folder.path(), options());
  fs::rename(folder.path() / "lease", folder.path() / "aside");
  fs::create_directory(folder.path() / "lease");
  ::usleep(500'000);
  EXPECT_FALSE(lease.lost_to()) << *lease.lost_to();
  EXPECT_TRUE(lease_is(folder.path(), lease.token()));
  try {
    const Lease other(folder.path(), options());
    FAIL() << "nobody can tell whose it is";
  } catch (const base::UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot read"), std::string::npos) << error.what();
  }
  fs::remove(folder.path() / "lease");
  fs::rename(folder.path() / "aside", folder.path() / "lease");
  ::usleep(200'000);
  EXPECT_FALSE(lease.lost_to());
}

TEST(Lease, AFileThatSomeoneRemovedComesBack) {
  const support::TemporaryFolder folder;
  const Lease lease(folder.path(), options());
  fs::remove(folder.path() / "lease");
  const std::int64_t start = base::now_ns();
  while (!fs::exists(folder.path() / "lease") && base::seconds_since(start) < 20) ::usleep(10'000);
  EXPECT_TRUE(lease_is(folder.path(), lease.token()));
  EXPECT_TRUE(fs::exists(folder.path() / "lease"));
}

}  // namespace
}  // namespace lockstep::journal
