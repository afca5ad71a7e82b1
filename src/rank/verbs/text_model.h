// A model that writes: its weights, its decoder and how its tokens read, from a run's checkpoint or from a model folder.
#pragma once

#include <c10/core/Device.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "config/run_config.h"
#include "layout/family.h"
#include "rank/comm/mesh.h"
#include "rank/kernels/session.h"
#include "rank/model/model.h"
#include "rank/parallel/replicate.h"
#include "rank/task/language/generator.h"

namespace lockstep::verbs {

// Either a run or a model folder.
struct ModelSource {
  std::filesystem::path run = {};         // run folder
  std::filesystem::path checkpoint = {};  // of the run; empty: the newest whole one
  std::filesystem::path model = {};       // Hugging Face model folder
  std::filesystem::path adapter = {};     // PEFT folder beside the model, or empty
  std::string dtype = {};                 // empty: as stored
  bool load_in_4bit = false, load_in_8bit = false;
};

struct TextModel {
  std::unique_ptr<kernels::Session> session;  // first, so that it ends last
  config::RunConfig config;
  parallel::Replica replica;
  std::unique_ptr<model::Decoder> decoder;
  std::shared_ptr<const text::Language> language;
  at::Device device = at::kCPU;

  std::int64_t context() const { return layout::context_length(config.model); }  // tokens that the model reads
};
// mesh: its ranks hold the model in shards between them; collective then, and so is whatever the decoder does. Null: this rank holds it.
TextModel open_text_model(const ModelSource& source, at::Device device, const comm::Mesh* mesh = nullptr);

}  // namespace lockstep::verbs
