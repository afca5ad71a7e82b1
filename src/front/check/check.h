// Is this machine fit to train: one list of checks, each with a verdict, words, and a fix from the catalogue. It never prints.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "front/launch/devices/devices.h"
#include "front/launch/devices/nvml.h"
#include "front/launch/environment.h"
#include "front/launch/meet/messages.h"
#include "front/launch/stop_wish.h"

namespace lockstep::check {

// From best to worst.
enum class Verdict { ok, not_here, warning, failed };
std::string_view name_of(Verdict verdict);  // "ok", "not here", "warning", "failed"

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string words;           // "NVIDIA H200, 139.8 GiB, PCIe 5.0 x16"
  std::string_view code = {};  // of the catalogue, where something is wrong
  std::string fix = {};        // what to do; the catalogue's where none is given
};
Finding good(std::string words);
Finding not_here(std::string words);
Finding warning(std::string_view code, std::string words, std::string fix = {});
Finding failed(std::string_view code, std::string words, std::string fix = {});

struct Outcome {
  std::vector<Finding> findings;             // one at least
  nlohmann::ordered_json numbers = nullptr;  // for programs that read them
};

// What checks look at, and what earlier ones leave to later ones.
struct Context {
  launch::Environment environment;
  config::Request request;       // what a run was asked for: its devices, ranks, machines, folders
  config::Settings settings;     // that follow from it, or those of a plain run where it cannot be read
  std::string mistake = {};      // why it cannot be read
  bool sizes_are_small = false;  // collectives of small sizes only
  const launch::StopWish* stop = nullptr;
  std::function<void(std::string_view)> say = {};                      // what people should read meanwhile: the way to start other machines
  std::function<void(std::span<const launch::meet::Facts>)> met = {};  // on machine 0, with what the others have found

  launch::Machine machine = {};
  int ranks = 1;  // of this machine, as a run would start them
  bool on_gpus = false;
  bool can_start = true;                                             // nothing is known that would keep a worker from starting
  nlohmann::ordered_json results = nlohmann::ordered_json::array();  // of the checks before, for other machines to read
};

struct Check {
  std::string_view group, name;
  std::string_view asks;  // "do ranks train the same weights"
  Outcome (*run)(Context& context);
};
const std::vector<Check>& checks();

struct Result {
  const Check* check = nullptr;
  Outcome outcome;
  double seconds = 0;
  Verdict verdict() const;  // the worst
};
nlohmann::ordered_json to_json(const Result& result);

struct Listener {
  std::function<void(const Check&)> begins = {};
  std::function<void(const Result&)> ends = {};
};
// Runs those that are named (all where nobody is), in the list's order. Ends early where it is asked to stop.
std::vector<Result> examine(Context& context, std::span<const std::string> names, const Listener& listener);

// How fast a collective was beside what connects the devices. `by`: "18 NVLinks of version 4".
Finding judge_speed(double bus_bytes_per_second, double link_bytes_per_second, bool nvlink, const std::string& words,
                    const std::string& by);

// The settings and the machine for a check of what `lockstep train` with the same flags would need. A request that cannot be read is the
// first finding, not an error.
Context make_context(config::Request request, launch::Environment environment);

}  // namespace lockstep::check
