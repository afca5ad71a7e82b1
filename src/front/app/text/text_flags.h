// The flags that generate and chat share: which model, on what, and how it chooses its words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "front/app/flags.h"
#include "front/launch/environment.h"

namespace lockstep::app {

struct TextWish {
  std::string run, checkpoint;  // a run,
  std::string model, adapter;   // or a model folder
  std::string dtype, device = "auto", system;
  bool load_in_4bit = false, load_in_8bit = false;
  std::optional<std::int64_t> max_tokens, top_k, seed;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::vector<std::string> stops;
};

void describe(CLI::App& app, TextWish& wish);
// UserError unless exactly one of run and model is given, and is there.
void check(const TextWish& wish, const std::string& verb);
// What a worker is told of it, behind its verb and other words.
std::vector<std::string> model_arguments(const TextWish& wish);
std::vector<std::string> sampling_arguments(const TextWish& wish);

// "cpu" or "cuda:N", for a verb that one worker does.
std::string device_for(const std::string& asked, const std::string& verb, const launch::Environment& environment);

}  // namespace lockstep::app
