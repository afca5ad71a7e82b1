// The machines of one run: they meet at machine 0's launcher, make sure that they are parts of the same run, and stay in touch.
// Where another launcher (srun, mpirun, a person) starts every rank by itself, each rank counts as a machine here.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "front/launch/launch.h"
#include "front/launch/meet/messages.h"
#include "front/launch/peers.h"

namespace lockstep::launch::meet {

// Where and how to meet.
struct Rendezvous {
  int node = 0;
  int nodes = 1;
  std::string master_addr;
  int master_port = 0;
  std::string address_setting = "--master-addr";  // for messages
  double timeout_s = 600;                         // the longest that anybody waits for the others
  std::string secret;                             // empty: machine 0 makes one and leaves it in `secret_file`, where others find it
  std::filesystem::path secret_file;
  bool ranks_are_machines = false;  // for messages: "rank 3" instead of "machine 3"
  bool on_one_host = false;         // nobody comes from outside
};

inline constexpr double look_every_s = 0.02;         // for whoever comes, and for a wish to stop
inline constexpr double silence_before_words_s = 1;  // a wait that ends sooner needs none

// How a meeting went: all agree, or someone was asked to stop before they did.
struct Gathered {
  std::optional<Agreement> agreement;
  Outcome outcome = {.kind = Outcome::Kind::stopped};  // where there is no agreement
};

// Called from the thread that runs the job.
class Machines : public Peers {
 public:
  // Blocks until all machines are here and agree. UserError, the same on all machines, where they are not of one run or one never came.
  // `restart` and `resume` are machine 0's word; elsewhere they come with the agreement.
  virtual Gathered gather(const Facts& mine, int restart, bool resume, Observer& observer, const StopWish& stop) = 0;
  // Where this machine's ranks reach the store of rank 0. `port`: on machine 0, its loopback port there.
  virtual int way_to_store(int port) = 0;
  // Machine 0 tells all others how it ended, and that they meet again if it restarts. Elsewhere: leaves, unless it restarts.
  virtual void conclude(const Ending& ending) = 0;
  // Elsewhere, after the verdict: machine 0's word that all meet again.
  virtual bool meets_again() const = 0;
  virtual bool in_touch() const = 0;  // with machine 0
  // On machine 0, after gather: what each machine has published of itself, by node. Elsewhere empty.
  virtual std::vector<Facts> everyone() const { return {}; }
};

std::unique_ptr<Machines> make_machines(Rendezvous rendezvous);

// LOCKSTEP_SECRET, or empty. UserError if it is too short to be one.
std::string given_secret(const Environment& environment);
std::string fresh_secret();

}  // namespace lockstep::launch::meet
