// The run folder's control file: what someone wishes of a run while it trains. Rank 0 takes it up between two steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace lockstep::journal {

enum class Wish : unsigned { stop = 1, save = 2, evaluate = 4, sample = 8 };
inline constexpr Wish all_wishes[] = {Wish::stop, Wish::save, Wish::evaluate, Wish::sample};
std::string_view name_of(Wish wish);
std::optional<Wish> wish_named(std::string_view name);

// Several wishes, as ranks tell them to each other.
using Wishes = unsigned;
inline bool has(Wishes wishes, Wish wish) { return (wishes & static_cast<unsigned>(wish)) != 0; }

// One wish, and whose: acknowledgements carry the id.
struct Asked {
  std::string id;
  Wish wish;
};

// Leaves wishes for the start of the run that holds the folder's lease with this token; a later start passes over them. The file comes
// into being whole. False where other wishes still lie there: ask again in a moment. UserError where the folder cannot be written to.
bool leave_wishes(const std::filesystem::path& control, std::span<const Asked> wishes, std::string_view lease);
// Takes them back where nobody has taken them up; false: someone has.
bool withdraw_wishes(const std::filesystem::path& control, std::span<const Asked> wishes);

// Rank 0's side: a thread looks for the file once a second, so no step waits for a disk.
class ControlReader {
 public:
  // `lease`: of this start. A person may also write plain words, one a line; those count if written since this was made.
  ControlReader(std::filesystem::path control, std::string lease, double every_s = 1);
  ~ControlReader();
  ControlReader(const ControlReader&) = delete;
  ControlReader& operator=(const ControlReader&) = delete;

  // The kinds of wishes that came since the last call; costs one atomic load where none came.
  Wishes announce();
  // Those announced so far of these kinds; they are the caller's to acknowledge.
  std::vector<Asked> take(Wishes kinds);
  // All that came, announced or not.
  std::vector<Asked> take_all();

 private:
  void look();
  void read_file(const std::filesystem::path& taken);

  std::filesystem::path control_;
  std::string lease_;
  double every_s_;
  std::filesystem::file_time_type begun_;
  std::atomic<bool> has_new_ = false;
  base::Mutex mutex_;
  base::Condition wake_;
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<Asked> new_ LOCKSTEP_GUARDED_BY(mutex_), announced_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lockstep::journal
