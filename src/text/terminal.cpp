// Control characters are the only bytes of UTF-8 that a terminal obeys.
#include "text/terminal.h"

namespace lockstep::text {

std::string harmless(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7f) c = '.';
  }
  return text;
}

}  // namespace lockstep::text
