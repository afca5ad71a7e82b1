// Ranks that hold one model in shards between them and write one text: the first of them decides, the others follow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "rank/comm/mesh.h"
#include "rank/task/task.h"

namespace lockstep::verbs {

// Every method is collective over all ranks, but for leads().
class Together {
 public:
  Together(const comm::Place& place, at::Device device, const std::shared_ptr<journal::PageWriter>& page);

  const comm::Mesh& mesh() const { return mesh_; }
  bool leads() const { return world_.place().rank == 0; }

  // Returns once all ranks are here, however long one of them takes.
  void meet(std::string_view what) const { world_.everyone().meet(what); }
  // All take the tokens that the first rank chose.
  task::Follow follow() const;
  // What the first rank says; others' answers do not count.
  bool as_first_says(bool yes) const;
  // What `ask` gave the first rank, which alone calls it, and which may take as long as a person thinks. Nothing: the end.
  using Tokens = std::vector<std::int32_t>;
  std::optional<Tokens> from_first(const std::function<std::optional<Tokens>()>& ask) const;

 private:
  comm::World world_;
  comm::Mesh mesh_;
};

}  // namespace lockstep::verbs
