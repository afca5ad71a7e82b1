// One HTTP/1.1 request and its answer. What is not plain is refused: no chunked bodies, no folded lines, no paths that climb.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::http {

using Fields = std::map<std::string, std::string, std::less<>>;

struct Request {
  std::string method;  // "GET"
  std::string path;    // decoded: begins with '/', no "." or ".." among its parts, no control characters
  Fields query;        // decoded; of a name given twice the first
  Fields headers;      // names in lower case; none is given twice
  std::string body;
  std::size_t body_bytes = 0;  // as announced
  bool keep_alive = true;

  std::string header(std::string_view name) const;  // empty where there is none
  std::string asked(std::string_view name) const;   // of the query
};

class Stream;

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string_view lasting = {};             // instead of body: bytes that live as long as the program
  std::shared_ptr<Stream> stream = nullptr;  // the answer stays open, and what is pushed is sent
  bool keep_alive = true;                    // false: the last one on its connection
};

// A request that is not answered by any handler.
struct Refusal {
  int status;
  std::string reason;  // for a person
};

struct Limits {
  std::size_t head_bytes = 16 << 10;
  std::size_t target_bytes = 4 << 10;
  std::size_t headers = 64;
  std::size_t body_bytes = 4 << 20;
};

// Where the head ends in these bytes, behind its empty line; nothing while it is not whole.
std::optional<std::size_t> head_end(std::string_view bytes);
// `head`: up to head_end(). The body is not there yet.
std::variant<Request, Refusal> parse_head(std::string_view head, const Limits& limits);

// Without the body where that is not wanted (HEAD).
std::string to_bytes(const Response& response, bool keep_alive, bool with_body);
Response plain_answer(int status, const std::string& reason);  // {"error": reason}

// "%2F" and, in queries, '+'. Nothing where it is malformed.
std::optional<std::string> decoded(std::string_view text, bool plus_is_space);

}  // namespace lockstep::http
