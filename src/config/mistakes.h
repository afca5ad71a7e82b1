// What is wrong with settings, one by one, for whoever shows each mistake beside its field. what() is the text that people read.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep::config {

class Mistakes : public base::UserError {
 public:
  explicit Mistakes(std::vector<std::string> list);
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
};

}  // namespace lockstep::config
