// The pages of all ranks of a job that run on this machine.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "record/page.h"

namespace lockstep::launch {

bool is_alive(pid_t pid);

// Makes the folder of the pages, and removes it at the end.
class Pages {
 public:
  // Ranks listed are ours to start: their old pages go. A foreign job's other ranks are found as their pages appear.
  Pages(std::string job, std::vector<int> ours, bool foreign);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  const std::vector<record::PageView>& read();  // by rank
  const std::vector<record::PageView>& last() const { return views_; }
  const record::PageView* of(int rank) const;  // as last read
  bool is_ours(int rank) const;

 private:
  void find_others();
  std::filesystem::path folder_;
  std::string job_;
  std::vector<int> ours_;
  bool foreign_;
  std::map<int, std::unique_ptr<record::PageReader>> readers_;
  std::vector<record::PageView> views_;
};

}  // namespace lockstep::launch
