// Wishes reach the reader once and whole, those for an earlier start never.
#include "journal/control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "support/temporary_folder.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;

class ControlTest : public ::testing::Test {
 protected:
  // What the reader announces. It looks a hundred times a second; a busy machine may keep it from that.
  static Wishes heard_by(ControlReader& reader) {
    for (int i = 0; i < 4000; ++i) {
      if (const Wishes wishes = reader.announce()) return wishes;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return 0;
  }
  void wait_until_taken() const {
    for (int i = 0; i < 4000 && fs::exists(control_); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  support::TemporaryFolder folder_;
  fs::path control_ = folder_.path() / "control";
};

TEST_F(ControlTest, WishesAreAnnouncedOnceAndTakenByKind) {
  ControlReader reader(control_, "lease", 0.01);
  EXPECT_EQ(reader.announce(), 0u);
  ASSERT_TRUE(leave_wishes(control_, std::vector<Asked>{{"a", Wish::save}, {"b", Wish::evaluate}}, "lease"));
  EXPECT_EQ(heard_by(reader), 2u | 4u);
  EXPECT_EQ(reader.announce(), 0u);
  EXPECT_TRUE(reader.take(static_cast<unsigned>(Wish::stop)).empty());
  const auto saves = reader.take(static_cast<unsigned>(Wish::save));
  ASSERT_EQ(saves.size(), 1u);
  EXPECT_EQ(saves[0].id, "a");
  ASSERT_EQ(reader.take_all().size(), 1u);
  EXPECT_TRUE(reader.take_all().empty());
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(ControlTest, WishesForAnEarlierStartArePassedOver) {
  ASSERT_TRUE(leave_wishes(control_, std::vector<Asked>{{"a", Wish::stop}}, "an earlier lease"));
  ControlReader reader(control_, "lease", 0.01);
  wait_until_taken();
  EXPECT_EQ(reader.announce(), 0u);
  EXPECT_FALSE(fs::exists(control_));
}

TEST_F(ControlTest, PlainWordsCountFromNowOn) {
  std::ofstream(control_) << "stop\n";
  fs::last_write_time(control_, fs::file_time_type::clock::now() - std::chrono::hours(1));
  ControlReader reader(control_, "lease", 0.01);
  wait_until_taken();
  EXPECT_EQ(reader.announce(), 0u) << "left before the start";
  std::ofstream(folder_.path() / "new") << "dance\n\n save \n{\"lease\":\"lease\",\"wish\":7,\"id\":[]}\n[[[\n";
  fs::last_write_time(folder_.path() / "new", fs::file_time_type::clock::now() + std::chrono::seconds(1));
  fs::rename(folder_.path() / "new", control_);
  EXPECT_EQ(heard_by(reader), 2u);
}

TEST_F(ControlTest, OneFileAtATimeAndItCanBeTakenBack) {
  const std::vector<Asked> mine = {{"mine", Wish::save}}, others = {{"others", Wish::stop}};
  ASSERT_TRUE(leave_wishes(control_, mine, "lease"));
  EXPECT_FALSE(leave_wishes(control_, others, "lease"));
  EXPECT_FALSE(withdraw_wishes(control_, others)) << "not theirs to take back";
  EXPECT_TRUE(fs::exists(control_));
  EXPECT_TRUE(withdraw_wishes(control_, mine));
  EXPECT_FALSE(withdraw_wishes(control_, mine));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

// Many ask at once: each wish is heard exactly once.
TEST_F(ControlTest, NoWishIsLostAmongMany) {
  ControlReader reader(control_, "lease", 0.001);
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&, i] {
      const std::vector<Asked> wish = {{std::to_string(i), Wish::save}};
      while (!leave_wishes(control_, wish, "lease")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  for (std::thread& asker : askers) asker.join();
  std::vector<std::string> ids;
  for (int i = 0; i < 4000 && ids.size() < 8; ++i) {
    for (const Asked& asked : reader.take_all()) ids.push_back(asked.id);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7"}));
}

}  // namespace
}  // namespace lockstep::journal
