// Any other machine's side of the machines of a run.
#pragma once

#include "front/launch/meet/gathering.h"
#include "front/launch/meet/links.h"
#include "front/launch/meet/machines.h"

namespace lockstep::launch::meet {

class Spoke : public Machines {
 public:
  explicit Spoke(Rendezvous rendezvous);  // UserError if machine 0's name does not resolve

  Gathered gather(const Facts& mine, int restart, bool resume, Observer& observer, const StopWish& stop) override;
  int way_to_store(int port) override;
  void conclude(const Ending& ending) override;
  bool meets_again() const override { return meets_again_; }
  bool in_touch() const override { return link_ >= 0; }

  bool judges() const override { return false; }
  News exchange(const Standing& mine) override;
  void wish_to_stop(int signal, bool at_once) override;

 private:
  void try_to_connect();
  void hear_of_connection(const Links::Event& event);
  std::optional<Gathered> hear_of_meeting(const Frame& frame, Facts& mine, Observer& observer);
  std::optional<Gathered> answer(const Frame& frame, Facts& mine, Observer& observer);
  std::string where() const;
  [[noreturn]] void turned_away() const;

  Rendezvous rendezvous_;
  const std::string launcher_;
  std::vector<Address> addresses_;
  std::unique_ptr<Links> links_;  // made with the secret, which may have to be found first
  int link_ = -1;
  bool joined_ = false;
  std::size_t next_address_ = 0;
  std::int64_t tried_ns_ = 0;
  std::string last_error_;
  std::int64_t told_ns_ = 0;
  std::string told_ends_;
  std::string lost_;
  std::optional<Frame> welcome_;  // to the next meeting, come while the last run was still being wound up
  bool meets_again_ = false;
};

}  // namespace lockstep::launch::meet
