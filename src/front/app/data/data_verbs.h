// The verbs under `lockstep data`. Each takes the arguments after its name and returns the exit code.
#pragma once

#include <span>
#include <string>

namespace lockstep::app {

int run_data_tokenize(std::span<const std::string> args);
int run_data_train_tokenizer(std::span<const std::string> args);
int run_data_inspect(std::span<const std::string> args);

}  // namespace lockstep::app
