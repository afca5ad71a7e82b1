// What launchers say to each other, and each message as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "front/launch/peers.h"
#include "journal/identity.h"

namespace lockstep::launch::meet {

enum class Say : std::uint8_t { welcome = 1, facts, waiting, agreed, refused, standing, stop, end };

// Machine 0 to one that has proven itself. In each folder that all must share lies a file of this name; empty: it is only asked who it is.
struct Welcome {
  std::string file;
  std::string pack() const;
  static Welcome unpack(std::string_view bytes);
};

// A folder that all machines must share, as this one knows it.
struct SharedFolder {
  std::string setting;  // "--output"
  std::string path;
  bool seen = false;  // machine 0's file lies in it
};

// What a machine publishes of itself.
struct Facts {
  int node = 0;
  int nodes = 1;
  int ranks = 1;  // that it will start
  std::string host;
  std::vector<SharedFolder> folders;
  journal::Identity identity;
  std::string remark;    // for machine 0 to read; nobody compares it
  std::string launcher;  // the same for as long as its process lives: one whose connection broke comes back, and is no second one
  std::string answers;   // the welcome's file
  std::string pack() const;
  static Facts unpack(std::string_view bytes);
};

// What all machines have agreed on.
struct Agreement {
  std::string job;  // names this run of machine 0's launcher; in every key of the store
  int restart = 0;  // counts its starts; in every key too
  int world_size = 1;
  int first_rank = 0;     // of this machine
  bool resume = false;    // a restart that goes on from a checkpoint
  std::string bind_host;  // the address by which this machine and the others reach each other
  std::string pack() const;
  static Agreement unpack(std::string_view bytes);
};

struct Refusal {
  int exit_code = 3;
  std::string text;
  std::string pack() const;
  static Refusal unpack(std::string_view bytes);
};

struct Stop {
  int signal = 0;
  bool at_once = false;
  std::string pack() const;
  static Stop unpack(std::string_view bytes);
};

struct Ending {
  Outcome outcome;
  bool restarts = false;  // the machines meet again
  std::string pack() const;
  static Ending unpack(std::string_view bytes);
};

// Times travel as ages, because clocks of machines have nothing in common.
std::string pack(const Standing& standing, std::int64_t now_ns);
Standing unpack_standing(std::string_view bytes, std::int64_t now_ns);

}  // namespace lockstep::launch::meet
