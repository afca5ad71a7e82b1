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
  // Of at most `width` columns (0: of any width), as far as leaving these columns out, the first of them first, comes to that; then the
  // first column is cut.
  std::string text(int width, std::vector<std::size_t> expendable) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::show
