// The parts of the catalogue, a file each.
#pragma once

#include <vector>

#include "front/catalog/catalog.h"

namespace lockstep::catalog {

std::vector<Entry> about_programs();       // LS-1..
std::vector<Entry> about_gpus();           // LS-2..
std::vector<Entry> about_communication();  // LS-3..
std::vector<Entry> about_room();           // LS-4..: memory, disks, limits
std::vector<Entry> about_files();          // LS-5..: models, data, checkpoints
std::vector<Entry> about_training();       // LS-6..

}  // namespace lockstep::catalog
