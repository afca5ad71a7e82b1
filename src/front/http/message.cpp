// Reading a request's head strictly, and writing answers with the headers that keep browsers safe.
#include "front/http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "front/http/stream.h"

namespace lockstep::http {
namespace {

// Scripts, styles and connections from here alone, nothing inline, in nobody's frame.
constexpr std::string_view safety =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n";

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 303: return "See Other";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
  }
  return "Answer";
}

bool is_token(std::string_view text) {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || others.find(static_cast<char>(c)) != others.npos;
  });
}

bool has_controls(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Nothing where a path could lead elsewhere than it says.
std::optional<std::string> plain_path(std::string_view written) {
  if (!written.starts_with('/')) return std::nullopt;
  const auto path = decoded(written, false);
  if (!path || has_controls(*path) || path->find('\\') != std::string::npos) return std::nullopt;
  for (const std::string& part : base::split(std::string_view(*path).substr(1), '/')) {
    if (part == "." || part == "..") return std::nullopt;
  }
  return path;
}

std::optional<Fields> read_query(std::string_view written) {
  Fields query;
  if (written.empty()) return query;
  for (const std::string& pair : base::split(written, '&')) {
    const std::size_t equals = pair.find('=');
    const auto name = decoded(std::string_view(pair).substr(0, equals), true);
    const auto value =
        equals == std::string::npos ? std::optional<std::string>("") : decoded(std::string_view(pair).substr(equals + 1), true);
    if (!name || !value) return std::nullopt;
    query.emplace(*name, *value);
  }
  return query;
}

std::optional<Refusal> read_request_line(std::string_view line, const Limits& limits, Request& request) {
  const std::vector<std::string> words = base::split(line, ' ');
  if (words.size() != 3 || !is_token(words[0])) return Refusal{400, "this is no HTTP request"};
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return Refusal{505, "HTTP/1.1 is spoken here"};
  request.keep_alive = words[2] == "HTTP/1.1";
  request.method = words[0];
  if (words[1].size() > limits.target_bytes) return Refusal{414, fmt::format("an address has {} characters at most", limits.target_bytes)};
  const std::string_view target = words[1];
  if (has_controls(target)) return Refusal{400, "this address holds control characters"};
  const std::size_t question = target.find('?');
  const auto path = plain_path(target.substr(0, question));
  if (!path) return Refusal{400, "this path is not plain"};
  request.path = *path;
  auto query = read_query(question == target.npos ? std::string_view() : target.substr(question + 1));
  if (!query) return Refusal{400, "the query of this address is malformed"};
  request.query = std::move(*query);
  return std::nullopt;
}

std::optional<Refusal> read_header(std::string_view line, Request& request) {
  const std::size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) return Refusal{400, "a header is malformed"};
  const std::string value = base::trim(line.substr(colon + 1));
  if (has_controls(value)) return Refusal{400, "a header holds control characters"};
  if (!request.headers.emplace(base::lower(line.substr(0, colon)), value).second) return Refusal{400, "a header is given twice"};
  return std::nullopt;
}

std::optional<Refusal> read_length(const Limits& limits, Request& request) {
  if (request.headers.contains("transfer-encoding")) return Refusal{501, "bodies in chunks are not read; send Content-Length"};
  const auto length = request.headers.find("content-length");
  if (length == request.headers.end()) {
    if (request.method == "POST" || request.method == "PUT") return Refusal{411, "a body needs Content-Length"};
    return std::nullopt;
  }
  const std::string& digits = length->second;
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return Refusal{400, "Content-Length is no number"};
  if (digits.size() > 12 || std::stoull(digits) > limits.body_bytes)
    return Refusal{413, fmt::format("a body has {} at most", base::human_bytes(limits.body_bytes))};
  request.body_bytes = std::stoull(digits);
  return std::nullopt;
}

}  // namespace

std::string Request::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string Request::asked(std::string_view name) const {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

std::optional<std::string> decoded(std::string_view text, bool plus_is_space) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1, low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    plain += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return plain;
}

std::optional<std::size_t> head_end(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n\r\n");
  return end == bytes.npos ? std::nullopt : std::optional(end + 4);
}

std::variant<Request, Refusal> parse_head(std::string_view head, const Limits& limits) {
  Request request;
  bool first = true;
  for (head.remove_suffix(2); !head.empty();) {
    const std::size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    if (const auto refusal = first ? read_request_line(line, limits, request) : read_header(line, request)) return *refusal;
    if (request.headers.size() > limits.headers) return Refusal{431, fmt::format("a request has {} headers at most", limits.headers)};
    first = false;
    head.remove_prefix(end + 2);
  }
  if (first) return Refusal{400, "this is no HTTP request"};
  if (const auto refusal = read_length(limits, request)) return *refusal;
  if (base::lower(request.header("connection")) == "close") request.keep_alive = false;
  return request;
}

std::string to_bytes(const Response& response, bool keep_alive, bool with_body) {
  std::string bytes = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status, reason_of(response.status), response.type);
  bytes += safety;
  bool caches = false;
  for (const auto& [name, value] : response.headers) {
    bytes += fmt::format("{}: {}\r\n", name, value);
    caches = caches || name == "Cache-Control";
  }
  if (!caches) bytes += "Cache-Control: no-store\r\n";
  bytes += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  if (response.stream) return bytes + "\r\n";
  const std::string_view body = response.lasting.empty() ? std::string_view(response.body) : response.lasting;
  bytes += fmt::format("Content-Length: {}\r\n\r\n", body.size());
  if (with_body) bytes += body;
  return bytes;
}

Response plain_answer(int status, const std::string& reason) {
  using Json = nlohmann::ordered_json;
  return {.status = status, .body = Json{{"error", reason}}.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace lockstep::http
