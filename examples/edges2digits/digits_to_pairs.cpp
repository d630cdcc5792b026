// Draws pairs of pictures from the digits of examples/digits, 64 × 64: the digit enlarged is the
// target, its outline the input.
//   digits_to_pairs examples/digits OUT   →  OUT/train/inputs/00000.png, OUT/train/targets/…,
//                                            OUT/held/…
#include "tanren/formats/png.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr int kSmall = 8, kLarge = 64;
using Digit = std::array<double, kSmall * kSmall>;    // ink in [0, 1]
using Picture = std::array<double, kLarge * kLarge>;  // the same, enlarged

// Interpolates between the small pixels by a smooth curve, and sharpens, so that strokes have a
// border.
Picture enlarged(const Digit& digit) {
  Picture picture{};
  for (int row = 0; row < kLarge; ++row) {
    for (int column = 0; column < kLarge; ++column) {
      const double scale = static_cast<double>(kSmall) / kLarge;
      const double y = std::clamp((row + 0.5) * scale - 0.5, 0.0, kSmall - 1.0);
      const double x = std::clamp((column + 0.5) * scale - 0.5, 0.0, kSmall - 1.0);
      const int top = std::min(static_cast<int>(y), kSmall - 2);
      const int left = std::min(static_cast<int>(x), kSmall - 2);
      const auto smooth = [](double t) { return t * t * (3 - 2 * t); };
      const double down = smooth(y - top), right = smooth(x - left);
      const auto at = [&](int r, int c) { return digit[static_cast<size_t>(r * kSmall + c)]; };
      const double above = at(top, left) * (1 - right) + at(top, left + 1) * right;
      const double below = at(top + 1, left) * (1 - right) + at(top + 1, left + 1) * right;
      const double ink = above * (1 - down) + below * down;
      picture[static_cast<size_t>(row * kLarge + column)] = std::clamp(2 * ink - 0.5, 0.0, 1.0);
    }
  }
  return picture;
}

// White where the ink crosses one half towards a neighbour.
Picture outline(const Picture& picture) {
  Picture edges{};
  const auto is_ink = [&](int row, int column) {
    return picture[static_cast<size_t>(row * kLarge + column)] >= 0.5;
  };
  for (int row = 0; row + 1 < kLarge; ++row) {
    for (int column = 0; column + 1 < kLarge; ++column) {
      const bool here = is_ink(row, column);
      const bool crosses = here != is_ink(row + 1, column) || here != is_ink(row, column + 1);
      edges[static_cast<size_t>(row * kLarge + column)] = crosses ? 1 : 0;
    }
  }
  return edges;
}

void write(const fs::path& path, const Picture& picture) {
  std::vector<uint8_t> rgb;
  for (const double ink : picture) {
    rgb.insert(rgb.end(), 3, static_cast<uint8_t>(std::lround(ink * 255)));
  }
  std::ofstream file(path, std::ios::binary);
  file << tanren::png_of(rgb, kLarge, kLarge);
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

// Rows "label,p0..p63" with values 0 (paper) to 16 (ink).
int convert(const fs::path& table, const fs::path& folder) {
  std::ifstream rows(table);
  std::string line;
  if (!std::getline(rows, line)) throw std::runtime_error("cannot read " + table.string());
  fs::create_directories(folder / "inputs");
  fs::create_directories(folder / "targets");
  int count = 0;
  while (std::getline(rows, line)) {
    std::istringstream cells(line);
    std::string cell;
    std::getline(cells, cell, ',');  // the label
    Digit digit{};
    size_t pixels = 0;
    while (std::getline(cells, cell, ',') && pixels < digit.size()) {
      digit[pixels++] = std::stoi(cell) / 16.0;
    }
    if (pixels != digit.size()) throw std::runtime_error("not 64 pixels: " + line);
    char name[32];
    std::snprintf(name, sizeof(name), "%05d.png", count++);
    const Picture large = enlarged(digit);
    write(folder / "targets" / name, large);
    write(folder / "inputs" / name, outline(large));
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: digits_to_pairs examples/digits OUT\n", stderr);
    return 2;
  }
  try {
    const fs::path from = argv[1], to = argv[2];
    const int train = convert(from / "train.csv", to / "train");
    const int held = convert(from / "eval.csv", to / "held");
    std::printf("%d pairs in %s/train, %d in %s/held\n", train, argv[2], held, argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[digits_to_pairs] %s\n", error.what());
    return 1;
  }
}
