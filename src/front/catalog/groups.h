// The parts of the catalogue, a file each. Codes: LS-1.. programs, 2.. GPUs, 3.. communication, 4.. memory, disks and limits, 5.. files,
// 6.. training.
#pragma once

#include <vector>

#include "front/catalog/catalog.h"

namespace lockstep::catalog {

std::vector<Entry> about_programs();
std::vector<Entry> about_other_trainers();
std::vector<Entry> about_drivers();
std::vector<Entry> about_gpus();
std::vector<Entry> about_collectives();
std::vector<Entry> about_machines();
std::vector<Entry> about_network();
std::vector<Entry> about_memory();
std::vector<Entry> about_limits();
std::vector<Entry> about_files();
std::vector<Entry> about_training();

}  // namespace lockstep::catalog
