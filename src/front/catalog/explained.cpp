// One object an entry.
#include "front/catalog/explained.h"

#include <cctype>
#include <nlohmann/json.hpp>

namespace lockstep::catalog {

using Json = nlohmann::ordered_json;

std::string fix_sentence(const Entry& entry) {
  std::string words(entry.fix);
  if (!words.empty()) words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
  return words + (words.ends_with('.') ? "" : ".");
}

Json explained(const Entry& entry) {
  return {{"code", entry.code},   {"title", entry.title},       {"symptom", entry.symptom},
          {"cause", entry.cause}, {"fix", fix_sentence(entry)}, {"consequence", entry.consequence}};
}

Json explained(const Hit& hit) {
  Json json = explained(*hit.entry);
  json["line"] = hit.line;
  json["text"] = hit.text;
  json["times"] = hit.times;
  return json;
}

}  // namespace lockstep::catalog
