// Two spaces between columns, none at the end of a line.
#include "front/show/table.h"

#include <algorithm>

namespace lockstep::show {
namespace {

// In characters: a sparkline's have three bytes each.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

using Rows = std::vector<std::vector<std::string>>;

std::vector<std::size_t> widths_of(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

std::size_t width_of_all(const Rows& rows) {
  std::size_t all = 0;
  for (const std::size_t width : widths_of(rows)) all += width + 2;
  return all - 2;
}

// Ends in two dots where something is cut off.
std::string cut(const std::string& text, std::size_t width) {
  if (width_of(text) <= width || width < 3) return text;
  std::string fits;
  std::size_t taken = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80 && ++taken > width - 2) break;
    fits += c;
  }
  return fits + "..";
}

std::string lines_of(const Rows& rows) {
  const std::vector<std::size_t> widths = widths_of(rows);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - width_of(row[i]) + 2, ' ');
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string Table::text() const { return lines_of(rows_); }

std::string Table::text(int width, std::vector<std::size_t> expendable) const {
  Rows rows = rows_;
  const auto room = static_cast<std::size_t>(std::max(0, width));
  for (std::size_t i = 0; room > 0 && i < expendable.size() && width_of_all(rows) > room; ++i) {
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(expendable[i]));
    for (std::size_t& other : expendable) other -= other > expendable[i] ? 1 : 0;
  }
  constexpr std::size_t least_name = 8;
  if (const std::size_t all = width_of_all(rows); room > 0 && all > room) {
    const std::size_t first = widths_of(rows).front(), over = all - room;
    for (auto& row : rows) row.front() = cut(row.front(), std::max(least_name, first > over ? first - over : 0));
  }
  return lines_of(rows);
}

}  // namespace lockstep::show
