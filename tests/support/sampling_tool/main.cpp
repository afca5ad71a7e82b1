// Lets the parity tests see what the sampling rules do to scores: JSON in on standard input, the scores out, null for what is left out.
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "rank/task/language/sampling.h"

using namespace lockstep;

// {"scores": [[...], ...], "seen": [[token, ...], ...], "temperature":, "top_k":, "top_p":, "min_p":, "repetition_penalty":}
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json job = nlohmann::json::parse(line);
    std::vector<at::Tensor> rows;
    for (const auto& row : job.at("scores")) rows.push_back(at::tensor(row.get<std::vector<float>>(), at::kFloat));
    at::Tensor scores = at::stack(rows);
    const at::Tensor seen = at::zeros(scores.sizes(), at::kBool);
    for (std::size_t i = 0; i < job.at("seen").size(); ++i)
      for (const std::int64_t token : job["seen"][i]) seen[std::int64_t(i)][token].fill_(true);
    const task::Sampling sampling{.temperature = job.at("temperature"),
                                  .top_k = job.at("top_k"),
                                  .top_p = job.at("top_p"),
                                  .min_p = job.at("min_p"),
                                  .repetition_penalty = job.at("repetition_penalty")};
    if (sampling.repetition_penalty != 1) scores = task::penalize(scores, seen, sampling.repetition_penalty);
    scores = task::warp(scores, sampling).contiguous();
    nlohmann::json out = nlohmann::json::array();
    for (std::int64_t i = 0; i < scores.size(0); ++i) {
      nlohmann::json row = nlohmann::json::array();
      for (std::int64_t j = 0; j < scores.size(1); ++j) {
        const float value = scores.const_data_ptr<float>()[i * scores.size(1) + j];
        row.push_back(std::isinf(value) ? nlohmann::json(nullptr) : nlohmann::json(value));
      }
      out.push_back(row);
    }
    std::cout << out.dump() << std::endl;
  }
  return 0;
}
