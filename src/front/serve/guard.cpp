// Host against names that lead here by trickery, Origin against other sites, the token against everyone else.
#include "front/serve/guard.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::serve {
namespace {

constexpr std::string_view cookie_name = "lockstep_token";

// "[::1]:8750" and "localhost:8750" without the port. Empty where it is malformed.
std::string name_in(const std::string& host) {
  std::string name = host, port;
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string::npos) return "";
    name = host.substr(1, end - 1);
    port = host.substr(end + 1);
  } else if (const std::size_t colon = host.find(':'); colon != std::string::npos) {
    name = host.substr(0, colon);
    port = host.substr(colon);
  }
  if (!port.empty() && (port.size() < 2 || port[0] != ':' || port.find_first_not_of("0123456789", 1) != std::string::npos)) return "";
  return base::lower(name);
}

bool is_address(const std::string& name) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, name.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

// Takes the same time wherever they differ.
bool equal(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string cookie_in(const http::Request& request) {
  for (const std::string& pair : base::split(request.header("cookie"), ';')) {
    const std::string trimmed = base::trim(pair);
    if (trimmed.starts_with(cookie_name) && trimmed.size() > cookie_name.size() && trimmed[cookie_name.size()] == '=')
      return trimmed.substr(cookie_name.size() + 1);
  }
  return "";
}

bool changes_something(const http::Request& request) { return request.method != "GET" && request.method != "HEAD"; }

// Browsers say where a request comes from; other programs say nothing and are no danger to anyone who only reads a page.
bool is_of_another_site(const http::Request& request) {
  const std::string origin = request.header("origin"), site = request.header("sec-fetch-site"), host = request.header("host");
  if (!origin.empty() && origin != "http://" + host && origin != "https://" + host) return true;
  return !site.empty() && site != "same-origin" && site != "none";
}

std::string machine_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? base::lower(name) : "";
}

}  // namespace

Guard::Guard(std::string host, std::string token) : host_(base::lower(host)), token_(std::move(token)), machine_(machine_name()) {}

bool Guard::is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// Names of other sites may be made to lead to this address; addresses themselves cannot.
bool Guard::is_own_name(const std::string& host_header) const {
  const std::string name = name_in(host_header);
  if (name.empty()) return false;
  if (is_loopback(name) && (name == "localhost" || is_address(name))) return true;
  return !token_.empty() && (is_address(name) || name == host_ || name == machine_);
}

bool Guard::knows_token(const http::Request& request) const {
  const std::string header = request.header("authorization");
  return token_.empty() || equal(cookie_in(request), token_) || equal(header, "Bearer " + token_);
}

std::optional<http::Response> Guard::stops(const http::Request& request) const {
  if (!is_own_name(request.header("host")))
    return http::plain_answer(421,
                              "this page is not served under the name in the request's Host header. Use http://localhost or the address "
                              "that `lockstep ui` printed.");
  const bool opens_page = request.method == "GET" && request.path == "/";
  if (is_of_another_site(request) && !(opens_page && request.header("origin").empty()))
    return http::plain_answer(403, "requests of other sites are refused");
  if (changes_something(request) && !request.header("content-type").starts_with("application/json"))
    return http::plain_answer(415, "send application/json");
  if (knows_token(request)) return std::nullopt;
  if (opens_page && equal(request.asked("token"), token_)) {
    return http::Response{
        .status = 303,
        .type = "text/plain",
        .headers = {{"Location", "/"}, {"Set-Cookie", std::string(cookie_name) + "=" + token_ + "; Path=/; HttpOnly; SameSite=Strict"}}};
  }
  return http::plain_answer(
      401, "this page needs its token. Open it once with the address that `lockstep ui` printed, http://HOST:PORT/?token=...");
}

}  // namespace lockstep::serve
