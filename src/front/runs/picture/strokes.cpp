// The alphabet. Capitals are 7 high, small letters 5; a font size is 10.
#include "front/runs/picture/strokes.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <string>

#include "base/utf8.h"

namespace lockstep::runs {
namespace {

constexpr double font_units = 10, degrees_a_piece = 15;

// How a letter is drawn: "M x y" sets the pen down, "L x y x y" draws lines, "A cx cy rx ry from to" an arc of an ellipse between two
// angles, joined to what came before; "|" lifts the pen.
struct Glyph {
  char letter;
  double advance;
  const char* pen;
};

constexpr Glyph unknown = {0, 5.2, "M .5 0 L .5 7 4 7 4 0 .5 0"};
constexpr Glyph ellipsis = {0, 6.4, "M .8 0 L .8 .1|M 3 0 L 3 .1|M 5.2 0 L 5.2 .1"};
constexpr Glyph alphabet[] = {
    // clang-format off
    {' ', 2.7, ""},
    {'!', 2.2, "M .8 7 L .8 2.2|M .8 0 L .8 .1"},
    {'"', 3.2, "M .7 7.2 L .7 5.2|M 2.1 7.2 L 2.1 5.2"},
    {'#', 5.6, "M 1.9 7 L 1.1 0|M 4.2 7 L 3.4 0|M .4 4.8 L 4.9 4.8|M .2 2.2 L 4.7 2.2"},
    {'$', 5.5, "A 2.5 5.2 1.9 1.7 35 270 A 2.5 1.8 2 1.7 90 -145|M 2.5 8 L 2.5 -1"},
    {'%', 7.4, "A 1.6 5.4 1.2 1.6 0 360|A 5.6 1.6 1.2 1.6 0 360|M 5.4 7 L 1.8 0"},
    {'&', 6.4, "M 5.6 0 L 1.5 4.8 A 2.6 5.7 1.3 1.3 215 -35 L 1.1 3 A 2.3 1.8 1.9 1.8 135 310 L 5.4 3.4"},
    {'\'', 1.9, "M .8 7.2 L .8 5.2"},
    {'(', 2.9, "A 3.1 3.1 2.5 5 120 240"},
    {')', 2.9, "A -.2 3.1 2.5 5 60 -60"},
    {'*', 4.2, "M 2 7 L 2 4|M .7 6.3 L 3.3 4.7|M 3.3 6.3 L .7 4.7"},
    {'+', 5.4, "M .6 3 L 4.6 3|M 2.6 5 L 2.6 1"},
    {',', 2.2, "M .9 .2 L .4 -1.3"},
    {'-', 3.5, "M .5 2.6 L 2.8 2.6"},
    {'.', 2.2, "M .9 0 L .9 .1"},
    {'/', 3.5, "M .2 -.8 L 3.1 7.6"},
    {'0', 5.8, "A 2.9 3.5 2.2 3.5 0 360"},
    {'1', 5.8, "M 1.2 5.5 L 3.2 7 3.2 0"},
    {'2', 5.8, "A 2.9 5 2 2 165 -35 L .8 0 5 0"},
    {'3', 5.8, "A 2.7 5.3 1.8 1.7 150 -90 A 2.7 1.8 2.1 1.8 90 -150"},
    {'4', 5.8, "M 4 0 L 4 7 .6 2 5.2 2"},
    {'5', 5.8, "M 4.7 7 L 1.5 7 1.1 3.7 A 2.8 2.25 2.1 2.25 140 -145"},
    {'6', 5.8, "A 2.9 2.2 2.1 2.2 0 360|A 4.7 2.2 3.9 4.8 180 103"},
    {'7', 5.8, "M .8 7 L 5 7 2.2 0"},
    {'8', 5.8, "A 2.9 5.35 1.75 1.65 0 360|A 2.9 1.85 2.1 1.85 0 360"},
    {'9', 5.8, "A 2.9 4.8 2.1 2.2 0 360|A 1.1 4.8 3.9 4.8 0 -77"},
    {':', 2.3, "M .9 0 L .9 .1|M .9 4 L .9 4.1"},
    {';', 2.3, "M .9 .2 L .4 -1.3|M .9 4 L .9 4.1"},
    {'<', 5.4, "M 4.6 5.3 L .7 3 4.6 .7"},
    {'=', 5.4, "M .6 3.9 L 4.6 3.9|M .6 2.1 L 4.6 2.1"},
    {'>', 5.4, "M .7 5.3 L 4.6 3 .7 .7"},
    {'?', 4.8, "A 2.3 5.2 1.8 1.8 165 -45 L 2.3 3 2.3 2.1|M 2.3 0 L 2.3 .1"},
    {'@', 8.4, "A 4.1 2.8 1.5 1.8 0 360|M 5.6 4.6 L 5.6 2 A 6.5 2.1 .9 1 190 330 A 4.1 2.9 3.5 4.1 0 305"},
    {'A', 6.2, "M .3 0 L 3.1 7 5.9 0|M 1.3 2.5 L 4.9 2.5"},
    {'B', 6.2, "M .9 0 L .9 7 3 7 A 3 5.35 1.8 1.65 90 -90 L .9 3.7|M 3 3.7 A 3.1 1.85 2.1 1.85 90 -90 L .9 0"},
    {'C', 6.4, "A 3.4 3.5 2.8 3.5 48 312"},
    {'D', 6.7, "M .9 0 L .9 7 2.6 7 A 2.6 3.5 3.3 3.5 90 -90 L .9 0"},
    {'E', 5.7, "M 4.9 7 L .9 7 .9 0 4.9 0|M .9 3.7 L 4.4 3.7"},
    {'F', 5.4, "M 4.8 7 L .9 7 .9 0|M .9 3.5 L 4.3 3.5"},
    {'G', 6.9, "A 3.5 3.5 2.9 3.5 48 325 L 5.9 3.2 3.9 3.2"},
    {'H', 6.7, "M .9 0 L .9 7|M 5.7 0 L 5.7 7|M .9 3.7 L 5.7 3.7"},
    {'I', 2.6, "M 1.2 0 L 1.2 7"},
    {'J', 4.8, "M 3.7 7 L 3.7 1.9 A 2.1 1.9 1.6 1.9 0 -160"},
    {'K', 6.1, "M .9 0 L .9 7|M 5.2 7 L .9 2.9|M 2.4 4.3 L 5.6 0"},
    {'L', 5.1, "M .9 7 L .9 0 4.6 0"},
    {'M', 7.9, "M .9 0 L .9 7 3.9 1.4 6.9 7 6.9 0"},
    {'N', 6.8, "M .9 0 L .9 7 5.8 0 5.8 7"},
    {'O', 7.2, "A 3.6 3.5 3 3.5 0 360"},
    {'P', 5.9, "M .9 0 L .9 7 3.1 7 A 3.1 5.1 2 1.9 90 -90 L .9 3.2"},
    {'Q', 7.2, "A 3.6 3.5 3 3.5 0 360|M 4.2 1.6 L 6.4 -.7"},
    {'R', 6.2, "M .9 0 L .9 7 3.1 7 A 3.1 5.1 2 1.9 90 -90 L .9 3.2|M 3.1 3.2 L 5.4 0"},
    {'S', 5.7, "A 2.8 5.25 2 1.75 38 270 A 2.8 1.75 2.2 1.75 90 -148"},
    {'T', 5.6, "M .3 7 L 5.3 7|M 2.8 7 L 2.8 0"},
    {'U', 6.6, "M .9 7 L .9 2.4 A 3.3 2.4 2.4 2.4 180 360 L 5.7 7"},
    {'V', 6, "M .3 7 L 3 0 5.7 7"},
    {'W', 8.4, "M .3 7 L 2.2 0 4.2 6.6 6.2 0 8.1 7"},
    {'X', 5.8, "M .5 7 L 5.3 0|M 5.3 7 L .5 0"},
    {'Y', 5.8, "M .3 7 L 2.9 3.3 5.5 7|M 2.9 3.3 L 2.9 0"},
    {'Z', 5.7, "M .7 7 L 5 7 .6 0 5.1 0"},
    {'[', 2.8, "M 2.2 7.7 L .8 7.7 .8 -1.5 2.2 -1.5"},
    {'\\', 3.5, "M .3 7.6 L 3.2 -.8"},
    {']', 2.8, "M .5 7.7 L 1.9 7.7 1.9 -1.5 .5 -1.5"},
    {'^', 5.2, "M .8 4.4 L 2.6 7 4.4 4.4"},
    {'_', 4.9, "M .1 -1.2 L 4.8 -1.2"},
    {'`', 2.6, "M .5 7.4 L 1.7 6"},
    {'a', 5.4, "A 2.5 2.5 1.9 2.5 0 360|M 4.4 5 L 4.4 0"},
    {'b', 5.5, "M .9 7.3 L .9 0|A 2.9 2.5 2 2.5 0 360"},
    {'c', 4.8, "A 2.6 2.5 2 2.5 50 310"},
    {'d', 5.5, "A 2.5 2.5 2 2.5 0 360|M 4.5 7.3 L 4.5 0"},
    {'e', 5.2, "M .6 2.6 L 4.6 2.6 A 2.6 2.5 2 2.5 0 312"},
    {'f', 3.2, "A 2.6 5.8 1.2 1.5 75 180 L 1.4 0|M .3 5 L 2.8 5"},
    {'g', 5.5, "A 2.5 2.5 2 2.5 0 360|M 4.5 5 L 4.5 -.3 A 2.6 -.3 1.9 1.8 0 -150"},
    {'h', 5.4, "M .9 7.3 L .9 0|M .9 3.1 A 2.7 3.1 1.8 1.9 180 0 L 4.5 0"},
    {'i', 2.2, "M 1 5 L 1 0|M 1 6.8 L 1 6.9"},
    {'j', 2.3, "M 1.2 5 L 1.2 -.7 A .2 -.7 1 1.3 0 -90|M 1.2 6.8 L 1.2 6.9"},
    {'k', 4.9, "M .9 7.3 L .9 0|M 4.1 5 L .9 1.9|M 2 3 L 4.5 0"},
    {'l', 2.2, "M 1 7.3 L 1 0"},
    {'m', 8, "M .9 5 L .9 0|M .9 3.3 A 2.4 3.3 1.5 1.7 180 0 L 3.9 0|M 3.9 3.3 A 5.5 3.3 1.6 1.7 180 0 L 7.1 0"},
    {'n', 5.4, "M .9 5 L .9 0|M .9 3.1 A 2.7 3.1 1.8 1.9 180 0 L 4.5 0"},
    {'o', 5.3, "A 2.6 2.5 2.1 2.5 0 360"},
    {'p', 5.5, "M .9 5 L .9 -2|A 2.9 2.5 2 2.5 0 360"},
    {'q', 5.5, "A 2.5 2.5 2 2.5 0 360|M 4.5 5 L 4.5 -2"},
    {'r', 3.5, "M .9 5 L .9 0|M .9 3 A 2.8 3 1.9 2 180 78"},
    {'s', 4.5, "A 2.2 3.75 1.5 1.25 38 270 A 2.2 1.25 1.7 1.25 90 -145"},
    {'t', 3.4, "M 1.4 6.5 L 1.4 1.3 A 2.6 1.3 1.2 1.3 180 288|M .3 5 L 2.9 5"},
    {'u', 5.4, "M .9 5 L .9 1.9 A 2.7 1.9 1.8 1.9 180 360|M 4.5 5 L 4.5 0"},
    {'v', 4.7, "M .4 5 L 2.4 0 4.4 5"},
    {'w', 7, "M .4 5 L 1.9 0 3.5 4.7 5.1 0 6.6 5"},
    {'x', 4.7, "M .5 5 L 4.2 0|M 4.2 5 L .5 0"},
    {'y', 4.7, "M .4 5 L 2.4 .1|M 4.4 5 L 2.1 -.9 1.5 -1.8 .5 -2"},
    {'z', 4.7, "M .7 5 L 4.1 5 .6 0 4.2 0"},
    {'{', 3.2, "M 2.7 7.7 L 1.9 7.6 1.5 7 1.5 4 .6 3.1 1.5 2.2 1.5 -.8 1.9 -1.4 2.7 -1.5"},
    {'|', 2.4, "M 1.2 -1.6 L 1.2 7.8"},
    {'}', 3.2, "M .5 7.7 L 1.3 7.6 1.7 7 1.7 4 2.6 3.1 1.7 2.2 1.7 -.8 1.3 -1.4 .5 -1.5"},
    {'~', 5.4, "A 1.7 2.7 1 .8 180 0 A 3.7 2.7 1 .8 180 360"},
    // clang-format on
};

std::array<const Glyph*, 128> by_letter() {
  std::array<const Glyph*, 128> found{};
  for (const Glyph& glyph : alphabet) found[static_cast<unsigned char>(glyph.letter)] = &glyph;
  return found;
}

class Pen {
 public:
  explicit Pen(const Glyph& glyph) : at_(glyph.pen) {
    while (*at_ != 0) follow();
    lift();
  }
  std::vector<Stroke> take() { return std::move(strokes_); }

 private:
  bool at_number() {
    while (*at_ == ' ') ++at_;
    return *at_ == '-' || *at_ == '.' || (*at_ >= '0' && *at_ <= '9');
  }
  double number() {
    char* end = nullptr;
    const double value = std::strtod(at_, &end);
    at_ = end;
    return value;
  }
  void follow() {
    const char command = *at_++;
    if (command == '|') lift();
    if (command == 'A') arc();
    if (command != 'M' && command != 'L') return;
    while (at_number()) {
      const double x = number();
      stroke_.push_back({x, number()});
    }
  }
  void arc() {
    std::array<double, 6> given{};  // center, radii, angles
    for (double& one : given) one = number();
    const auto [x, y, across, up, from, to] = given;
    const int pieces = static_cast<int>(std::ceil(std::abs(to - from) / degrees_a_piece));
    for (int i = 0; i <= pieces; ++i) {
      const double angle = (from + (to - from) * i / pieces) * std::numbers::pi / 180;
      stroke_.push_back({x + across * std::cos(angle), y + up * std::sin(angle)});
    }
  }
  void lift() {
    if (!stroke_.empty()) strokes_.push_back(std::move(stroke_));
    stroke_.clear();
  }

  const char* at_;
  Stroke stroke_;
  std::vector<Stroke> strokes_;
};

}  // namespace

Writing write(std::string_view text) {
  static const auto letters = by_letter();
  Writing written;
  while (!text.empty()) {
    const std::size_t bytes = std::max<std::size_t>(1, base::utf8_length(text));
    const auto first = static_cast<unsigned char>(text.front());
    const Glyph* known = bytes == 1 && first < letters.size() ? letters[first] : text.starts_with("…") ? &ellipsis : nullptr;
    const Glyph& glyph = known != nullptr ? *known : unknown;
    for (Stroke& stroke : Pen(glyph).take()) {
      for (Point& point : stroke) point = {written.width + point.x / font_units, point.y / font_units};
      written.strokes.push_back(std::move(stroke));
    }
    written.width += glyph.advance / font_units;
    text.remove_prefix(bytes);
  }
  return written;
}

}  // namespace lockstep::runs
