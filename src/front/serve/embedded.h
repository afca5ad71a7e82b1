// What tools/embed_page.py makes of the built page: the table of its files.
#pragma once

#include <span>

#include "front/serve/assets.h"

namespace lockstep::serve {

std::span<const Asset> embedded_assets();

}  // namespace lockstep::serve
