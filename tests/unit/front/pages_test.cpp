// Pages of this job, of jobs that are gone, and of jobs that only seem to be.
#include "front/launch/pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/file_lock.h"
#include "front/launch/launch.h"
#include "journal/run_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using journal::PageWriter;
using journal::Phase;

// A process that does something and then waits until it is killed.
class Process {
 public:
  explicit Process(const std::function<void()>& work) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      work();
      [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Process() { end(); }
  void end(bool collect = true) {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &ended, collect ? WEXITED : WEXITED | WNOWAIT);
    if (collect) pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// A name no other test or job has.
std::string job_name(const char* what) { return fmt::format("{}test{}", what, ::getpid()); }

void make_old(const fs::path& folder) {
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, folder.c_str(), long_ago, 0), 0);
}

std::vector<int> ranks_in(Pages& pages) {
  std::vector<int> ranks;
  for (const auto& view : pages.read()) ranks.push_back(static_cast<int>(view.rank));
  return ranks;
}

// By hand at one port, or as a requeued step, the second job has the first one's name and finds its pages.
TEST(Pages, ThoseOfADeadJobArePassedOver) {
  const std::string job = job_name("dead");
  const fs::path folder = make_pages_folder(job);
  const auto write_page = [&](int rank) {
    return [&job, rank] {
      auto* writer = new PageWriter(journal::page_path(job, rank), rank);
      writer->set_phase(Phase::backward, 3);
      writer->stamp("world", "all_reduce", "of the dead", 7, 68);
    };
  };
  Process reaped(write_page(1)), zombie(write_page(2)), other(write_page(3));
  reaped.end();
  zombie.end(/*collect=*/false);

  Pages pages(job, {0}, /*foreign=*/true);
  {
    Process quick(write_page(4));
    quick.end();
    EXPECT_EQ(ranks_in(pages), (std::vector<int>{3, 4})) << "one of this job that was dead before anyone looked";
    fs::remove(journal::page_path(job, 4));
  }
  EXPECT_EQ(ranks_in(pages), (std::vector<int>{3, 4})) << "one that lives belongs to the job, whoever was here first";
  other.end(/*collect=*/false);
  EXPECT_EQ(ranks_in(pages), (std::vector<int>{3, 4})) << "one that was seen alive is not forgotten";
  ASSERT_NE(pages.of(3), nullptr);
  EXPECT_FALSE(pages.of(3)->alive);
  EXPECT_EQ(pages.of(3)->process, journal::ProcessState::gone);

  const PageWriter fresh(journal::page_path(job, 1), 1);  // the new job's rank 1 comes
  EXPECT_EQ(ranks_in(pages), (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(pages.of(1)->phase, Phase::starting);
  EXPECT_TRUE(pages.of(1)->operations.empty());
  fs::remove_all(folder);
}

TEST(Pages, OneLauncherARank) {
  const std::string job = job_name("twice");
  {
    const Pages first(job, {0}, /*foreign=*/true), beside(job, {1}, /*foreign=*/true);
    EXPECT_THROW(Pages(job, {0}, /*foreign=*/true), base::UserError);
  }
  EXPECT_FALSE(fs::exists(journal::pages_folder(job))) << "the last one cleans up";
}

TEST(Pages, StoppedProcessesAreSeen) {
  Process sleeper([] {});
  EXPECT_EQ(look_at_process(sleeper.pid()), journal::ProcessState::running);
  ::kill(sleeper.pid(), SIGSTOP);
  int status = 0;
  ::waitpid(sleeper.pid(), &status, WUNTRACED);
  EXPECT_EQ(look_at_process(sleeper.pid()), journal::ProcessState::stopped);
  sleeper.end(/*collect=*/false);
  EXPECT_EQ(look_at_process(sleeper.pid()), journal::ProcessState::gone) << "a zombie";
}

// Saves, with a thread that is in the kernel all the time, each time for so long: as the caller of vfork() until the child has left.
std::function<void()> waits_for_a_disk(const std::string& job, int rank, unsigned each_ms) {
  return [=] {
    auto* writer = new PageWriter(journal::page_path(job, rank), rank);
    writer->set_phase(Phase::saving, 3);
    std::thread([=] {
      for (;;) {
        const pid_t child = ::vfork();
        if (child == 0) {
          ::prctl(PR_SET_PDEATHSIG, SIGKILL);
          ::usleep(each_ms * 1000);
          ::_exit(0);
        }
        ::waitpid(child, nullptr, 0);
      }
    }).detach();
  };
}

TEST(Pages, ADiskThatAnswersIsToldFromOneThatDoesNot) {
  const std::string job = job_name("disk");
  const fs::path folder = make_pages_folder(job);
  const Process at_work(waits_for_a_disk(job, 1, 50)), left_alone(waits_for_a_disk(job, 2, 600'000));
  {
    Pages pages(job, {0}, /*foreign=*/true);
    const std::int64_t begun = base::now_ns();
    const auto slept_s = [&](int rank) {
      const auto* page = pages.of(rank);
      const bool asleep = page != nullptr && page->process == journal::ProcessState::uninterruptible;
      return asleep ? base::seconds_since(page->process_since_ns) : 0;
    };
    double longest_at_work = 0;
    for (pages.read(); slept_s(2) < 4 && base::seconds_since(begun) < 60; ::usleep(20'000), pages.read())
      longest_at_work = std::max(longest_at_work, slept_s(1));
    EXPECT_GE(slept_s(2), 4);
    EXPECT_LT(longest_at_work, 3) << "each look finds it in another sleep";
  }
  fs::remove_all(folder);
}

// The pid in a folder's name says nothing to another container; the lock of its launcher does.
TEST(Pages, OnlyFoldersWithoutAnOwnerAreSwept) {
  const std::string held = fmt::format("999999999-{:x}", ::getpid()), dead = fmt::format("999999998-{:x}", ::getpid()),
                    unlocked = fmt::format("999999997-{:x}", ::getpid()), young = fmt::format("999999996-{:x}", ::getpid());
  const auto hold = [](const std::string& job) { return [job] { new Pages(job, {0}, /*foreign=*/false); }; };
  const Process owner(hold(held));
  Process gone(hold(dead)), just_now(hold(young));
  gone.end();
  just_now.end();
  make_pages_folder(unlocked);
  for (const std::string& job : {held, dead, unlocked}) make_old(journal::pages_folder(job));
  sweep_old_pages();
  EXPECT_TRUE(fs::exists(journal::pages_folder(held))) << "its launcher lives";
  EXPECT_FALSE(fs::exists(journal::pages_folder(dead)));
  EXPECT_TRUE(fs::exists(journal::pages_folder(unlocked))) << "nothing proves that its owner is gone";
  EXPECT_TRUE(fs::exists(journal::pages_folder(young))) << "it may be in the making";
  for (const std::string& job : {held, unlocked, young}) fs::remove_all(journal::pages_folder(job));
}

TEST(Pages, SecretsOfDeadJobsAreSwept) {
  const auto secret = [](const char* which) { return fs::path(journal::pages_folder(job_name(which)).string() + ".secret"); };
  const fs::path held = secret("held"), dead = secret("dead"), young = secret("young");
  for (const fs::path& path : {held, dead, young}) std::ofstream(path) << "a secret";
  const auto lock = base::FileLock::take(held);
  ASSERT_TRUE(lock);
  for (const fs::path& path : {held, dead}) make_old(path);
  sweep_old_pages();
  EXPECT_TRUE(fs::exists(held)) << "its launcher lives";
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(young)) << "its launcher may be about to lock it";
  for (const fs::path& path : {held, young}) fs::remove(path);
}

TEST(Pages, AFolderOfAnotherUserIsRefused) {
  const std::string job = job_name("link");
  const fs::path elsewhere = fs::temp_directory_path() / job;
  fs::create_directory(elsewhere);
  fs::create_directory_symlink(elsewhere, journal::pages_folder(job));
  EXPECT_THROW(make_pages_folder(job), base::UserError);
  EXPECT_TRUE(fs::is_empty(elsewhere));
  fs::remove(journal::pages_folder(job));
  fs::remove(elsewhere);
}

}  // namespace
}  // namespace lockstep::launch
