// Reads the model, and holds streams by a kernel that waits.
#include "rank/bench/link.h"

#include <fmt/format.h>

#include <sstream>

#include "base/error.h"
#include "rank/kernels/hold.h"

namespace lockstep::bench {
namespace {

class KernelHolder final : public comm::Holder {
 public:
  KernelHolder(int blocks, std::shared_ptr<train::Timeline> timeline) : blocks_(blocks), timeline_(std::move(timeline)) {}
  void begin(const at::Tensor& clock, std::string_view kind) override {
    if (timeline_) timeline_->begin(kind, kind);
    kernels::begin_hold(clock);
  }
  void hold(const at::Tensor& clock, std::string_view kind, double seconds) override {
    if (seconds > 0) kernels::hold(clock, seconds, blocks_);
    if (timeline_) timeline_->end(kind);
  }

 private:
  const int blocks_;
  std::shared_ptr<train::Timeline> timeline_;
};

std::string words(const comm::ModelledLink& link) {
  if (link.bytes_per_second == 0) return "no time at all";
  return fmt::format("{:.4g} GB/s one way after {:.3g} us", link.bytes_per_second * 1e-9, link.latency_s * 1e6);
}

}  // namespace

LinkModel parse_link_model(const std::string& text) {
  LinkModel model;
  std::istringstream in(text);
  comm::ModelledLinks& links = model.links;
  in >> model.ranks >> links.within.bytes_per_second >> links.within.latency_s >> links.between.bytes_per_second >>
      links.between.latency_s >> links.machine >> model.blocks >> model.name;
  base::check(!in.fail(), "lockstep gives its workers a whole model of a link");
  return model;
}

std::shared_ptr<comm::Holder> make_holder(int blocks, std::shared_ptr<train::Timeline> timeline) {
  return std::make_shared<KernelHolder>(blocks, std::move(timeline));
}

std::string LinkModel::describe() const {
  std::string text = fmt::format("one of {} ranks, the others and their links modelled: {}, {}", ranks, name, words(links.within));
  if (ranks > links.machine) text += fmt::format("; {} between machines of {}", words(links.between), links.machine);
  if (links.within.bytes_per_second == 0) return text;
  return text + (blocks == 1 ? "; moved by copy engines" : fmt::format("; moved by {} blocks of a device", blocks));
}

}  // namespace lockstep::bench
