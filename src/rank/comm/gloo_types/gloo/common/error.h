// Named by ProcessGroupGloo.hpp; all types stand in gloo/context.h.
#pragma once
#include <gloo/context.h>
