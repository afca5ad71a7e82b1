// Hands tensors of a run or of a checkpoint to the writer of model folders.
#include "rank/train/export.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "rank/train/state.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

config::DType dtype_of(const std::string& name, config::DType otherwise) {
  for (const config::DType dtype : {config::DType::f32, config::DType::f16, config::DType::bf16}) {
    if (config::name_of(dtype) == name) return dtype;
  }
  base::check(name.empty(), "the front has read --dtype");
  return otherwise;
}

// A line that is written over, ten times a second at most.
class Bar {
 public:
  void show(std::uint64_t bytes, std::uint64_t of) {
    if (!terminal_ || (bytes < of && base::seconds_since(shown_ns_) < 0.1)) return;
    shown_ns_ = base::now_ns();
    const int width = 30, full = of > 0 ? static_cast<int>(width * bytes / of) : width;
    fmt::print(stderr, "\r[{}{}] {} of {} ", std::string(static_cast<std::size_t>(full), '='),
               std::string(static_cast<std::size_t>(width - full), ' '), base::human_bytes(bytes), base::human_bytes(of));
    std::fflush(stderr);
  }
  ~Bar() {
    if (shown_ns_ > 0) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::int64_t shown_ns_ = 0;
};

fs::path checkpoint_of(const ExportRequest& request, const config::RunConfig& config, const record::RunFolder& folder) {
  if (!request.checkpoint.empty()) return request.checkpoint;
  std::vector<std::string> skipped;
  const auto newest = checkpoint::newest_whole(checkpoints_folder(config, folder), &skipped);
  for (const std::string& line : skipped) base::log_warning("{}", line);
  if (!newest) throw base::checkpoint_error("export", "{} has no whole checkpoint yet.", request.run.string());
  return *newest;
}

}  // namespace

checkpoint::HubExport hub_export_of(const config::RunConfig& config) {
  std::error_code error;
  checkpoint::HubExport what{.model = config.model, .dtype = config.model.dtype};
  // The folder may be gone when an old run is exported; the shape says all that is needed.
  if (!config.model.path.empty() && fs::exists(fs::path(config.model.path) / "config.json", error)) what.source = config.model.path;
  what.tokenizer = config.data.tokenizer.empty() ? what.source : fs::path(config.data.tokenizer);
  return what;
}

fs::path export_model(const Run& run) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& unit : run.replica.units) {
    for (auto& [name, view] : unit->pieces_of(unit->master().defined() ? unit->master() : unit->weights())) tensors[name] = view;
  }
  const fs::path folder = run.folder.root / "model";
  checkpoint::write_hub_folder(base::real_files(), folder, hub_export_of(run.config),
                               {.fetch = [&](const std::string& name) { return tensors.at(name); }});
  return folder;
}

ExportRequest parse_export_request(const std::map<std::string, std::string>& arguments) {
  const auto text = [&](const char* name) {
    const auto found = arguments.find(name);
    return found == arguments.end() ? std::string() : found->second;
  };
  ExportRequest request{.run = text("run"), .checkpoint = text("checkpoint"), .output = text("output"), .dtype = text("dtype")};
  if (const auto bytes = base::parse_integer(text("max-shard-bytes"))) request.max_shard_bytes = static_cast<std::uint64_t>(*bytes);
  return request;
}

std::string export_checkpoint(const ExportRequest& request) {
  const record::RunFolder folder{request.run};
  config::RunConfig config = config::load_resolved(folder.config());
  config.model = config::with_defaults(config.model);
  if (config.lora.enabled) {
    throw base::usage_error("export", "{} trained an adapter, not a whole model: there is no model to export in its checkpoints.",
                            request.run.string());
  }
  const fs::path where = checkpoint_of(request, config, folder);
  const checkpoint::Reader reader(where);
  check_same_model(reader, config.model);
  checkpoint::HubExport what = hub_export_of(config);
  what.dtype = dtype_of(request.dtype, config.model.dtype);
  what.max_shard_bytes = request.max_shard_bytes;
  Bar bar;
  std::uint64_t total = 0;
  checkpoint::write_hub_folder(base::real_files(), request.output, what,
                               {.fetch = [&](const std::string& name) { return reader.view("model", name); },
                                .done = [&](const std::string& name) { reader.forget("model", name); }},
                               [&](std::uint64_t bytes, std::uint64_t of) {
                                 total = of;
                                 bar.show(bytes, of);
                               });
  return fmt::format("{}: {} in {}, from {}", request.output.string(), base::human_bytes(total), config::name_of(what.dtype),
                     where.string());
}

}  // namespace lockstep::train
