// Entries of the catalogue as JSON: what `lockstep explain --json` prints and the page shows.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "front/catalog/catalog.h"

namespace lockstep::catalog {

// What to try, as a sentence of its own.
std::string fix_sentence(const Entry& entry);

nlohmann::ordered_json explained(const Entry& entry);
nlohmann::ordered_json explained(const Hit& hit);  // the entry, with line, text and times

}  // namespace lockstep::catalog
