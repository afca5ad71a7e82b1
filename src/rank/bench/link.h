// A step of one rank of many whose links are modelled: what `lockstep bench step --ranks 8 --link nvlink8` gives its one worker.
#pragma once

#include <string>

#include "rank/comm/modelled.h"
#include "rank/train/watch/timeline.h"

namespace lockstep::bench {

// "8 3.6e11 3e-06 4.4e+10 5e-06 8 16 nvlink8": ranks, bytes a second and latency within a machine and between machines, ranks of a
// machine, blocks of a collective's kernel, and what to call it.
struct LinkModel {
  int ranks = 1;
  comm::ModelledLinks links;  // without who holds streams
  int blocks = 16;
  std::string name;

  std::string describe() const;
};
LinkModel parse_link_model(const std::string& text);
// timeline: is told when operations begin and end; null: nobody is.
std::shared_ptr<comm::Holder> make_holder(int blocks, std::shared_ptr<train::Timeline> timeline);

}  // namespace lockstep::bench
