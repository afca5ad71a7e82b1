// A drawing as pixels, and pixels as a PNG file. A plot is mostly runs of equal rows and pixels, so the compression knows runs alone: the
// difference to the row above, Huffman's fixed codes, and repeats of the byte before. A plot of 1920 x 1080 comes to 60 kB where it is
// smooth, and to 600 kB where it is not.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "base/hash/crc32.h"
#include "front/runs/picture/canvas.h"

namespace lockstep::runs {
namespace {

void put_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

void put_chunk(std::string& out, const std::string& kind_and_bytes) {
  put_big_endian(out, static_cast<std::uint32_t>(kind_and_bytes.size() - 4));
  out += kind_and_bytes;
  put_big_endian(out, base::crc32(kind_and_bytes));
}

std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t sum = 1, sums = 0;
  for (const char byte : bytes) {
    sum = (sum + static_cast<unsigned char>(byte)) % 65521;
    sums = (sums + sum) % 65521;
  }
  return sums << 16 | sum;
}

// One block of RFC 1951 with the fixed codes.
class Deflate {
 public:
  explicit Deflate(std::string& out) : out_(out) { put(0b011, 3); }  // the last block, fixed codes

  void literal(int byte) { symbol(byte); }
  // The byte before, so many times again: 3 to 258.
  void repeat(int count) {
    constexpr std::array<int, 29> first = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                           31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    constexpr std::array<int, 29> extra_bits = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    const auto code = static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), count) - first.begin() - 1);
    symbol(257 + static_cast<int>(code));
    put(static_cast<std::uint32_t>(count - first[code]), extra_bits[code]);
    put(0, 5);  // one byte back
  }
  void end() {
    symbol(256);
    if (bits_ > 0) out_ += static_cast<char>(waiting_);
  }

 private:
  void put(std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) {
      waiting_ |= (value >> i & 1) << bits_;
      if (++bits_ < 8) continue;
      out_ += static_cast<char>(waiting_);
      waiting_ = 0;
      bits_ = 0;
    }
  }
  // Huffman codes are written from their highest bit on.
  void code(std::uint32_t value, int count) {
    for (int i = count - 1; i >= 0; --i) put(value >> i & 1, 1);
  }
  void symbol(int which) {
    const auto value = static_cast<std::uint32_t>(which);
    if (which < 144) return code(0x30 + value, 8);
    if (which < 256) return code(0x190 + value - 144, 9);
    if (which < 280) return code(value - 256, 7);
    code(0xc0 + value - 280, 8);
  }

  std::string& out_;
  std::uint32_t waiting_ = 0;
  int bits_ = 0;
};

std::string compressed(std::string_view bytes) {
  std::string out = "\x78\x01";
  Deflate deflate(out);
  for (std::size_t i = 0; i < bytes.size();) {
    const char byte = bytes[i];
    deflate.literal(static_cast<unsigned char>(byte));
    std::size_t end = ++i;
    while (end < bytes.size() && bytes[end] == byte) ++end;
    for (std::size_t left; (left = end - i) >= 3;) {
      const std::size_t count = std::min<std::size_t>(left, 258);
      deflate.repeat(static_cast<int>(count));
      i += count;
    }
  }
  deflate.end();
  put_big_endian(out, adler32(bytes));
  return out;
}

// Each row as its difference to the one above (filter 2).
std::string filtered(const Canvas& canvas) {
  const std::size_t row_bytes = 3 * static_cast<std::size_t>(canvas.width());
  const auto pixels = canvas.pixels();
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<std::size_t>(canvas.height()));
  for (std::size_t row = 0; row < pixels.size(); row += row_bytes) {
    rows += '\2';
    for (std::size_t i = row; i < row + row_bytes; ++i) rows += static_cast<char>(pixels[i] - (row == 0 ? 0 : pixels[i - row_bytes]));
  }
  return rows;
}

Color color_of(const Label& label) {
  if (label.role == Role::tick) return {0x66, 0x66, 0x66};
  if (label.role == Role::name) return {0x44, 0x44, 0x44};
  return {0x33, 0x33, 0x33};
}

void draw(Canvas& canvas, const Line& line, double scale) {
  std::vector<Stroke> strokes(1);
  for (const Point& point : line.points) {
    if (std::isfinite(point.y))
      strokes.back().push_back({point.x * scale, point.y * scale});
    else if (!strokes.back().empty())
      strokes.emplace_back();
  }
  canvas.draw(strokes, line.thickness * scale, line.role == Role::grid ? Color{0xdd, 0xdd, 0xdd} : line.color, line.opacity);
}

void draw(Canvas& canvas, const Label& label, double scale) {
  const double size = font_size(label.role);
  Writing writing = write(label.text);
  const double begin = label.anchor == Anchor::start ? 0 : label.anchor == Anchor::middle ? -writing.width / 2 : -writing.width;
  for (Stroke& stroke : writing.strokes) {
    for (Point& point : stroke) {
      const double along = (point.x + begin) * size, up = point.y * size;
      point = label.upward ? Point{(label.x - up) * scale, (label.y - along) * scale}
                           : Point{(label.x + along) * scale, (label.y - up) * scale};
    }
  }
  const double pen = size * (label.role == Role::title ? 0.115 : 0.085);
  canvas.draw(writing.strokes, pen * scale, color_of(label));
}

}  // namespace

std::string png_file(const Canvas& canvas) {
  std::string head = "IHDR";
  put_big_endian(head, static_cast<std::uint32_t>(canvas.width()));
  put_big_endian(head, static_cast<std::uint32_t>(canvas.height()));
  head += std::string("\x08\x02\x00\x00\x00", 5);  // 8 bits, RGB, deflate, filters, not interlaced
  std::string file = "\x89PNG\r\n\x1a\n";
  put_chunk(file, head);
  put_chunk(file, "IDAT" + compressed(filtered(canvas)));
  put_chunk(file, "IEND");
  return file;
}

std::string png_of(const Drawing& drawing, int scale) {
  Canvas canvas(static_cast<int>(drawing.width) * scale, static_cast<int>(drawing.height) * scale, {0xff, 0xff, 0xff});
  for (const Line& one : drawing.lines) draw(canvas, one, scale);
  for (const Label& one : drawing.labels) draw(canvas, one, scale);
  return png_file(canvas);
}

}  // namespace lockstep::runs
