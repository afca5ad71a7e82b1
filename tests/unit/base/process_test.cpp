// What the kernel says of processes that may end at any moment.
#include "base/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace lockstep::base {
namespace {

TEST(Process, AFileThatCannotBeReadIsEmpty) {
  EXPECT_EQ(process_file(::getpid(), "nothing"), "");
  EXPECT_EQ(process_file(::getpid(), "task"), "") << "it opens, and cannot be read";
  EXPECT_GT(process_file(::getpid(), "status").size(), 500u);
}

// Between the opening of its file and the reading of it a process may go: one time in five, where it is looked at all the time.
TEST(Process, OneThatEndsWhileItIsLookedAtIsGone) {
  for (int i = 0; i < 60; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    std::thread collector([child] { ::waitpid(child, nullptr, 0); });
    EXPECT_NO_THROW(while (!process_stat(child).empty()){});
    collector.join();
  }
}

}  // namespace
}  // namespace lockstep::base
