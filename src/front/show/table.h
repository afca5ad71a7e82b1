// Columns of text, each as wide as its widest cell.
#pragma once

#include <string>
#include <vector>

namespace lockstep::show {

class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;  // with a line end behind every row

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::show
