// Brings the machines of a run together before its ranks start, and knows where those ranks meet.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "front/job/setup.h"
#include "front/launch/meet/machines.h"

namespace lockstep::job {

// One for all starts of a run.
class Meeting {
 public:
  // `identity`: what must be the same everywhere. `folders`: what must be one folder for all. Machine 0 listens from here on.
  // UserError where the secret is missing or machine 0's name does not resolve.
  Meeting(Setup& setup, const launch::Environment& environment, journal::Identity identity,
          std::vector<launch::meet::SharedFolder> folders);

  // Whether other launchers take part.
  static bool is_needed(const Setup& setup);
  const std::string& made_secret() const { return made_secret_; }     // by this machine, which the others need
  void remark(std::string text) { facts_.remark = std::move(text); }  // what machine 0 shall read of this machine
  // The command that starts another machine, if this one has made the secret; for a person to copy.
  std::string invitation(const std::string& program, std::span<const std::string> args) const;

  // Waits for the others, places the ranks among theirs and opens the store's port. An outcome if it was stopped meanwhile.
  std::optional<launch::Outcome> begin(int restart, launch::Observer& observer, const launch::StopWish& stop);
  launch::meet::Machines* machines() const { return machines_.get(); }

 private:
  launch::meet::Rendezvous rendezvous(const launch::Environment& environment);
  void place_ranks(const launch::meet::Agreement& agreement);
  void open_store();

  Setup& setup_;
  launch::meet::Facts facts_;
  std::string made_secret_;
  std::unique_ptr<launch::meet::Machines> machines_;  // null: all ranks are started from here, or torchrun joins them
  std::optional<launch::PortLease> lease_;
};

}  // namespace lockstep::job
