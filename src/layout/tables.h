// Everything that says who holds, moves and checks what in a run of so many ranks, without a rank: the mesh, how each unit is cut, and what
// a step gathers and reduces. A worker computes by the same tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "layout/memory/step_memory.h"
#include "layout/spread/mesh.h"
#include "layout/spread/schedule.h"

namespace lockstep::layout {

// UserError where the ranks cannot be cut into parallel.replicate groups.
MeshShape mesh_of(const config::RunConfig& config, int ranks);

struct Tables {
  MeshShape mesh;
  Placement placement;
  bool trained = true;         // the model's own units; frozen beside adapters otherwise
  std::vector<UnitCut> units;  // of the model, in forward order; nothing where units are whole
  std::vector<Action> schedule;
  std::vector<Step> moves;
  Traffic traffic;  // of one rank, in one step
};
// form: what gradients are in where memory has decided that; otherwise as where it is plenty.
Tables tables_of(const config::RunConfig& config, std::int64_t micro_batches, int ranks, std::optional<GradientForm> form = {});

// The first thing wrong with them, for any rank: groups that do not meet, an element that no rank has, or two, a slice that lies outside
// its room, a move out of order. "" if nothing.
std::string wrong_with(const Tables& tables);

// "data 0-511, shard 0-7, replicate 0, 8, ..., 504": the groups of a rank that have others in them.
std::string groups_of(const Tables& tables, int rank);

}  // namespace lockstep::layout
