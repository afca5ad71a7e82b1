// The files of the page, which the build has put into the program.
#pragma once

#include <string_view>

#include "front/http/message.h"

namespace lockstep::serve {

struct Asset {
  std::string_view path;  // "/assets/index-ab12cd.js"
  std::string_view type;  // "text/javascript"
  std::string_view plain, gzip;
  bool lasts = false;  // its name changes with its content
};

// Of a path that names no file the page itself: its address is its state.
http::Response asset(const http::Request& request);

}  // namespace lockstep::serve
