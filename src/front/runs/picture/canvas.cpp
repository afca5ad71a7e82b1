// A pixel is covered by how far its middle lies inside the pen's edge.
#include "front/runs/picture/canvas.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::runs {
namespace {

double distance(double x, double y, const Point& from, const Point& to) {
  const double across = to.x - from.x, down = to.y - from.y, length = across * across + down * down;
  const double share = length > 0 ? std::clamp(((x - from.x) * across + (y - from.y) * down) / length, 0.0, 1.0) : 0;
  return std::hypot(x - from.x - share * across, y - from.y - share * down);
}

}  // namespace

Canvas::Canvas(int width, int height, Color background)
    : width_(width),
      height_(height),
      pixels_(static_cast<std::size_t>(width) * height * 3),
      covered_(static_cast<std::size_t>(width) * height) {
  for (std::size_t i = 0; i < pixels_.size(); i += 3) {
    pixels_[i] = background.red;
    pixels_[i + 1] = background.green;
    pixels_[i + 2] = background.blue;
  }
}

Canvas::Box Canvas::around(double left, double top, double right, double bottom) const {
  const auto inside = [](double value, int size) { return static_cast<int>(std::clamp(value, 0.0, static_cast<double>(size))); };
  return {inside(std::floor(left), width_), inside(std::floor(top), height_), inside(std::ceil(right) + 1, width_),
          inside(std::ceil(bottom) + 1, height_)};
}

void Canvas::cover(const Point& from, const Point& to, double radius) {
  const double reach = radius + 1;
  const Box box = around(std::min(from.x, to.x) - reach, std::min(from.y, to.y) - reach, std::max(from.x, to.x) + reach,
                         std::max(from.y, to.y) + reach);
  for (int y = box.top; y < box.bottom; ++y) {
    for (int x = box.left; x < box.right; ++x) {
      const auto share = static_cast<float>(std::clamp(radius + 0.5 - distance(x + 0.5, y + 0.5, from, to), 0.0, 1.0));
      float& covered = covered_[static_cast<std::size_t>(y) * width_ + x];
      covered = std::max(covered, share);
    }
  }
}

void Canvas::paint(const Box& box, Color color, double opacity) {
  const double ink[3] = {static_cast<double>(color.red), static_cast<double>(color.green), static_cast<double>(color.blue)};
  for (int y = box.top; y < box.bottom; ++y) {
    for (int x = box.left; x < box.right; ++x) {
      const std::size_t at = static_cast<std::size_t>(y) * width_ + x;
      const double share = covered_[at] * opacity;
      covered_[at] = 0;
      if (share <= 0) continue;
      for (std::size_t channel = 0; channel < 3; ++channel) {
        std::uint8_t& pixel = pixels_[3 * at + channel];
        pixel = static_cast<std::uint8_t>(std::lround(pixel + share * (ink[channel] - pixel)));
      }
    }
  }
}

void Canvas::draw(std::span<const Stroke> strokes, double thickness, Color color, double opacity) {
  constexpr double far = std::numeric_limits<double>::infinity();
  double left = far, top = far, right = -far, bottom = -far;
  const double radius = thickness / 2;
  for (const Stroke& stroke : strokes) {
    for (std::size_t i = 0; i < stroke.size(); ++i) {
      cover(stroke[i == 0 ? 0 : i - 1], stroke[i], radius);
      left = std::min(left, stroke[i].x), right = std::max(right, stroke[i].x);
      top = std::min(top, stroke[i].y), bottom = std::max(bottom, stroke[i].y);
    }
  }
  if (left <= right) paint(around(left - radius - 1, top - radius - 1, right + radius + 1, bottom + radius + 1), color, opacity);
}

}  // namespace lockstep::runs
