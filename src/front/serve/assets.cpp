// Hands out embedded files, packed where the browser takes that.
#include "front/serve/assets.h"

#include <algorithm>
#include <span>

#include "front/serve/embedded.h"

namespace lockstep::serve {

http::Response asset(const http::Request& request) {
  const std::span<const Asset> all = embedded_assets();
  const auto find = [&](std::string_view path) {
    return std::find_if(all.begin(), all.end(), [&](const Asset& one) { return one.path == path; });
  };
  auto found = find(request.path);
  if (found == all.end() && !request.path.starts_with("/assets/")) found = find("/index.html");
  if (found == all.end()) return http::plain_answer(404, "there is no such file");
  const bool packed = request.header("accept-encoding").find("gzip") != std::string::npos;
  http::Response response{.type = std::string(found->type), .lasting = packed ? found->gzip : found->plain};
  if (packed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.headers.emplace_back("Vary", "Accept-Encoding");
  response.headers.emplace_back("Cache-Control", found->lasts ? "public, max-age=31536000, immutable" : "no-cache");
  return response;
}

}  // namespace lockstep::serve
