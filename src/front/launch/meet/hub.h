// Machine 0's side of the machines of a run.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/file/file_lock.h"
#include "front/launch/meet/gathering.h"
#include "front/launch/meet/links.h"
#include "front/launch/meet/machines.h"
#include "front/launch/meet/pack.h"

namespace lockstep::launch::meet {

// A machine that says nothing for so long is lost.
double silence_allowed(const Rendezvous& rendezvous);

class Hub : public Machines {
 public:
  explicit Hub(Rendezvous rendezvous);  // listens from here on
  ~Hub() override;

  Gathered gather(const Facts& mine, int restart, bool resume, Observer& observer, const StopWish& stop) override;
  int way_to_store(int port) override;
  void conclude(const Ending& ending) override;
  bool meets_again() const override { return false; }
  bool in_touch() const override { return true; }
  std::vector<Facts> everyone() const override;

  bool judges() const override { return true; }
  News exchange(const Standing& mine) override;
  void wish_to_stop(int signal, bool at_once) override;

 private:
  class Marks;
  void meet(const Links::Event& event, Observer& observer);
  std::optional<Refusal> admit(int link, const std::string& body);
  bool is_news(const std::string& words);  // the first time; and not of too many
  void tell_of_stranger(const Links::Event& event, Observer& observer);
  void refuse_one(int link, const Refusal& refusal);
  [[noreturn]] void refuse_all(const Refusal& refusal);
  Refusal nobody_came() const;
  Agreement settle(int restart, bool resume);
  void welcome_later(int link);
  void know_again(int link, const std::string& body);
  bool has_come_back(const Facts& facts) const;
  void forget_link(int node);
  void hear(int node, const Frame& frame, News& news);
  void pass_on(const Stop& stop, int from);
  void wait_until_they_leave();
  std::optional<int> node_of(int link) const;

  Rendezvous rendezvous_;
  const std::string secret_;
  std::optional<base::FileLock> secret_in_use_;
  Links links_;
  const std::string job_;
  std::string asked_with_;      // the file of the last welcome
  std::set<int> joined_;        // links that have proven themselves
  std::map<int, Facts> here_;   // by node, ours included
  std::map<int, int> link_of_;  // by node
  std::map<int, Standing> standings_;
  std::set<std::string> strangers_;  // that were told of
  std::string lost_;
};

}  // namespace lockstep::launch::meet
