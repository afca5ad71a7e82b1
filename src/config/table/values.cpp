// Read off the table of options.
#include "config/table/values.h"

#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {

std::vector<KeyValue> key_values(const RunConfig& config) {
  std::vector<KeyValue> all;
  for (const Option& option : options()) all.push_back({std::string(option.key), write_value(option, option.get(config))});
  return all;
}

}  // namespace lockstep::config
