// The pages of all ranks of a job that run on this machine, and what the kernel says of their processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file/file_lock.h"
#include "journal/page.h"

namespace lockstep::launch {

// Running, stopped or gone: its main thread is looked at alone.
journal::ProcessState look_at_process(pid_t pid);

// Makes the folder of the pages, and removes it at the end. While it lives it holds a lock there, by which others know that the folder
// is in use.
class Pages {
 public:
  // Ranks listed are ours to start: their old pages go. A foreign job's other ranks are found as their pages appear; pages that an
  // earlier job of the same name left are passed over.
  Pages(std::string job, std::vector<int> ours, bool foreign);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  const std::vector<journal::PageView>& read();  // by rank
  const std::vector<journal::PageView>& last() const { return views_; }
  const journal::PageView* of(int rank) const;  // as last read
  bool is_ours(int rank) const;

 private:
  void find_others();
  bool left_by_an_earlier_job(const journal::PageView& page);
  void look_at_processes();
  void look_at(const journal::PageView& view);
  base::FileLock lock_folder() const;

  struct Look {
    journal::ProcessState state = journal::ProcessState::running;
    std::int64_t since_ns = 0;
    std::map<std::pair<pid_t, std::uint64_t>, std::int64_t> sleeps = {};  // by thread and switches: since when
  };
  std::filesystem::path folder_;
  std::string job_;
  std::vector<int> ours_;
  bool foreign_;
  std::int64_t start_ns_;
  std::int64_t looked_ns_ = 0;
  base::FileLock lock_;
  std::set<std::pair<int, std::int64_t>> seen_alive_;  // pages of others, by rank and time of making
  std::map<std::uint32_t, Look> looks_;                // by pid
  std::map<int, std::unique_ptr<journal::PageReader>> readers_;
  std::vector<journal::PageView> views_;
};

}  // namespace lockstep::launch
