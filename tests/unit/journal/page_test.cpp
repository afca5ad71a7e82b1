// The page: what is written is what is read, whatever the timing and even if the writer is killed.
#include "journal/page.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

namespace lockstep::journal {
namespace {

struct TempFolder {
  std::filesystem::path path;
  TempFolder() {
    std::string name = std::filesystem::temp_directory_path() / "lockstep-page-XXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
};

TEST(Page, IsNotThereBeforeTheWriterAndReadableAfterIt) {
  TempFolder folder;
  PageReader reader(folder.path / "0.page");
  EXPECT_FALSE(reader.read());
  {
    PageWriter writer(folder.path / "0.page", 3);
    writer.set_phase(Phase::backward, 17);
  }
  const auto view = reader.read();
  ASSERT_TRUE(view);
  EXPECT_EQ(view->rank, 3u);
  EXPECT_EQ(view->pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(view->phase, Phase::backward);
  EXPECT_EQ(view->step, 17);
  EXPECT_GT(view->progress_ns, 0);
}

TEST(Page, ANewOneTakesThePlaceOfTheOneBefore) {
  TempFolder folder;
  PageReader reader(folder.path / "0.page");
  std::int64_t created_ns = 0;
  {
    PageWriter writer(folder.path / "0.page", 0);
    writer.set_phase(Phase::backward, 17);
    EXPECT_EQ(reader.read()->step, 17);
    created_ns = reader.read()->created_ns;
  }
  PageWriter next(folder.path / "0.page", 0);
  next.set_phase(Phase::connecting, 0);
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(reader.read()->phase, Phase::connecting);
  EXPECT_GT(reader.read()->created_ns, created_ns);
  std::filesystem::remove(folder.path / "0.page");
  EXPECT_EQ(reader.read()->phase, Phase::connecting) << "one that was removed is still read by who has it";
}

// Whatever pids say: a zombie's pid is taken, one of another container means nothing here.
TEST(Page, TellsWhetherItsWriterLives) {
  TempFolder folder;
  const auto path = folder.path / "0.page";
  const pid_t child = ::fork();
  if (child == 0) {
    PageWriter writer(path, 0);
    for (;;) ::pause();
  }
  PageReader reader(path);
  while (!reader.read()) ::usleep(100);
  EXPECT_TRUE(reader.read()->alive);
  EXPECT_TRUE(PageReader(path).read()->alive) << "others may look too";
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(reader.read()->alive) << "a stopped process lives";
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);  // it stays a zombie
  EXPECT_FALSE(reader.read()->alive);
  EXPECT_EQ(::kill(child, 0), 0);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(reader.read()->alive);
}

TEST(Page, ProgressIsMoreThanPhases) {
  TempFolder folder;
  PageWriter writer(folder.path / "0.page", 0);
  writer.set_phase(Phase::forward, 1);
  PageReader reader(folder.path / "0.page");
  const auto before = *reader.read();
  ::usleep(1000);
  writer.note_progress();
  const auto after = *reader.read();
  EXPECT_GT(after.progress_ns, before.progress_ns);
  EXPECT_EQ(after.phase_since_ns, before.phase_since_ns);
}

TEST(Page, LinksAreNotFollowed) {
  TempFolder folder;
  std::ofstream(folder.path / "mine") << "precious";
  std::filesystem::create_symlink(folder.path / "mine", folder.path / "0.page.new");
  const PageWriter writer(folder.path / "0.page", 0);
  std::string text;
  std::ifstream(folder.path / "mine") >> text;
  EXPECT_EQ(text, "precious");
}

TEST(Page, PrivatePageNeedsNoFile) {
  TempFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  {
    PageWriter writer({}, 0);
    writer.set_phase(Phase::forward, 1);
    const auto first = writer.stamp("world", "all_reduce", "x", 0, 8), second = writer.stamp("world", "all_reduce", "y", 1, 8);
    EXPECT_NE(first, second);
    writer.mark(first, 0, OperationState::finished);
    writer.set_failure("text", 6);
  }
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(Page, AnotherFileAtThePathIsNoPage) {
  TempFolder folder;
  std::ofstream(folder.path / "0.page") << "hello";
  PageReader reader(folder.path / "0.page");
  EXPECT_FALSE(reader.read());
}

TEST(Page, KeepsTheNewestOperationsInOrder) {
  TempFolder folder;
  PageWriter writer(folder.path / "0.page", 0);
  PageReader reader(folder.path / "0.page");
  for (std::uint64_t i = 0; i < 100; ++i) writer.stamp("world", "all_reduce", "gradients of block " + std::to_string(i), i, i * 8);
  const auto view = reader.read();
  ASSERT_TRUE(view);
  ASSERT_EQ(view->operations.size(), static_cast<std::size_t>(operations_kept));
  for (int i = 0; i < operations_kept; ++i) {
    const auto& operation = view->operations[static_cast<std::size_t>(i)];
    EXPECT_EQ(operation.sequence, static_cast<std::uint64_t>(100 - operations_kept + i));
    EXPECT_EQ(operation.bytes, operation.sequence * 8);
    EXPECT_STREQ(operation.what, ("gradients of block " + std::to_string(operation.sequence)).c_str());
    EXPECT_EQ(operation.state, OperationState::issued);
  }
}

TEST(Page, MarksOnlyTheOperationThatWasMeant) {
  TempFolder folder;
  PageWriter writer(folder.path / "0.page", 0);
  PageReader reader(folder.path / "0.page");
  const int first = writer.stamp("world", "all_reduce", "a", 1, 8);
  const int second = writer.stamp("world", "all_reduce", "b", 2, 8);
  writer.mark(second, 2, OperationState::waited_for);
  writer.mark(first, 1, OperationState::finished);
  auto view = reader.read();
  EXPECT_EQ(view->operations[0].state, OperationState::finished);
  EXPECT_EQ(view->operations[1].state, OperationState::waited_for);
  for (int i = 0; i < operations_kept; ++i) writer.stamp("other", "barrier", "c", 1, 0);
  writer.mark(first, 1, OperationState::waited_for);  // its slot belongs to another operation with the same number by now
  view = reader.read();
  for (const auto& operation : view->operations) EXPECT_EQ(operation.state, OperationState::issued);
}

TEST(Page, LongTextsAreCutAndTheFirstFailureWins) {
  TempFolder folder;
  PageWriter writer(folder.path / "0.page", 0);
  PageReader reader(folder.path / "0.page");
  writer.stamp(std::string(100, 'g'), std::string(100, 'k'), std::string(100, 'w'), 1, 1);
  writer.set_failure(std::string(10000, 'f'), 4);
  writer.set_failure("second", 6);
  const auto view = reader.read();
  EXPECT_EQ(std::string(view->operations[0].group), std::string(23, 'g'));
  EXPECT_EQ(std::string(view->operations[0].what), std::string(71, 'w'));
  EXPECT_GT(view->failure.size(), 1000u);
  EXPECT_EQ(view->failure.find_first_not_of('f'), std::string::npos);
  EXPECT_EQ(view->failure_code, 4);
  EXPECT_GT(view->failure_ns, 0);
}

// What every write in the two tests below keeps true.
void expect_consistent(const PageView& view) {
  for (const auto& operation : view.operations) {
    ASSERT_EQ(operation.bytes, operation.sequence * 3);
    ASSERT_EQ(std::string(operation.what), std::string(operation.sequence % 70, static_cast<char>('a' + operation.sequence % 26)));
  }
  for (std::size_t i = 1; i < view.operations.size(); ++i) ASSERT_EQ(view.operations[i].sequence, view.operations[i - 1].sequence + 1);
}
void write_one(PageWriter& writer, std::uint64_t i) {
  writer.stamp("world", "all_reduce", std::string(i % 70, static_cast<char>('a' + i % 26)), i, i * 3);
}

TEST(Page, ReadersNeverSeeAHalfWrittenPage) {
  TempFolder folder;
  PageWriter writer(folder.path / "0.page", 0);
  std::atomic<bool> stop = false;
  std::thread stamping([&] {
    for (std::uint64_t i = 0; !stop; ++i) write_one(writer, i);
  });
  std::thread phases([&] {
    for (std::int64_t i = 0; !stop; ++i) writer.set_phase(i % 2 == 0 ? Phase::forward : Phase::backward, i);
  });
  PageReader reader(folder.path / "0.page");
  std::int64_t step = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto view = reader.read();
    ASSERT_TRUE(view);
    expect_consistent(*view);
    ASSERT_EQ(view->phase, view->step == 0 && view->phase == Phase::starting ? Phase::starting
                           : view->step % 2 == 0                             ? Phase::forward
                                                                             : Phase::backward);
    ASSERT_GE(view->step, step);
    step = view->step;
  }
  stop = true;
  stamping.join();
  phases.join();
}

TEST(Page, IsWholeWheneverItsWriterIsKilled) {
  TempFolder folder;
  for (int round = 0; round < 30; ++round) {
    const auto path = folder.path / (std::to_string(round) + ".page");
    const pid_t child = ::fork();
    if (child == 0) {
      PageWriter writer(path, 0);
      for (std::uint64_t i = 0;; ++i) write_one(writer, i);
    }
    PageReader reader(path);
    while (!reader.read()) ::usleep(100);
    ::usleep(static_cast<useconds_t>(37 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto view = reader.read();
    ASSERT_TRUE(view);
    expect_consistent(*view);
  }
}

TEST(Page, LongPhasesAreDeclared) {
  const std::vector<Phase> in_a_step = {Phase::reading_data, Phase::forward, Phase::backward, Phase::reducing, Phase::updating};
  for (int i = 0; i <= static_cast<int>(Phase::done); ++i) {
    const Phase phase = static_cast<Phase>(i);
    const bool short_one = std::find(in_a_step.begin(), in_a_step.end(), phase) != in_a_step.end();
    EXPECT_EQ(may_take_long(phase), !short_one) << describe(phase);
    EXPECT_FALSE(describe(phase).starts_with("in an unknown")) << i;
  }
}

}  // namespace
}  // namespace lockstep::journal
