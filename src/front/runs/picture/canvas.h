// Pixels, and a pen with smooth edges.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "front/runs/picture/drawing.h"
#include "front/runs/picture/strokes.h"

namespace lockstep::runs {

class Canvas {
 public:
  Canvas(int width, int height, Color background);

  // Strokes in pixels, y downward, with round ends and joints. What overlaps within one call is not painted twice.
  void draw(std::span<const Stroke> strokes, double thickness, Color color, double opacity = 1);

  int width() const { return width_; }
  int height() const { return height_; }
  std::span<const std::uint8_t> pixels() const { return pixels_; }  // [height, width, 3]

 private:
  struct Box {
    int left, top, right, bottom;  // the last two are outside
  };
  Box around(double left, double top, double right, double bottom) const;
  void cover(const Point& from, const Point& to, double radius);
  void paint(const Box& box, Color color, double opacity);

  int width_, height_;
  std::vector<std::uint8_t> pixels_;
  std::vector<float> covered_;  // [height, width], share of each pixel that the strokes at hand cover; 0 between calls
};

// 8 bits a channel, RGB.
std::string png_file(const Canvas& canvas);

}  // namespace lockstep::runs
