// Writes the digits of examples/digits as a folder of PNGs, one folder per class:
//   digits_to_png examples/digits OUT     →  OUT/train/0/00000.png …, OUT/held/0/…
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <spng.h>

namespace {

namespace fs = std::filesystem;

constexpr uint32_t kSide = 8;

void write_png(const fs::path& path, std::vector<uint8_t>& pixels) {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> png(spng_ctx_new(SPNG_CTX_ENCODER),
                                                           spng_ctx_free);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                             std::fclose);
  if (!file) throw std::runtime_error("cannot write " + path.string());
  spng_set_png_file(png.get(), file.get());
  spng_ihdr header{};
  header.width = header.height = kSide;
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_GRAYSCALE;
  spng_set_ihdr(png.get(), &header);
  if (spng_encode_image(png.get(), pixels.data(), pixels.size(), SPNG_FMT_PNG,
                        SPNG_ENCODE_FINALIZE) != 0) {
    throw std::runtime_error("cannot encode " + path.string());
  }
}

// Rows "label,p0..p63" with values 0 (paper) to 16 (ink).
int convert(const fs::path& table, const fs::path& folder) {
  std::ifstream rows(table);
  std::string line;
  if (!std::getline(rows, line)) throw std::runtime_error("cannot read " + table.string());
  int count = 0;
  while (std::getline(rows, line)) {
    std::istringstream cells(line);
    std::string label, cell;
    std::getline(cells, label, ',');
    std::vector<uint8_t> pixels;
    while (std::getline(cells, cell, ',')) {
      pixels.push_back(static_cast<uint8_t>(std::stoi(cell) * 255 / 16));
    }
    if (pixels.size() != kSide * kSide) throw std::runtime_error("not 64 pixels: " + line);
    fs::create_directories(folder / label);
    char name[32];
    std::snprintf(name, sizeof(name), "%05d.png", count++);
    write_png(folder / label / name, pixels);
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: digits_to_png examples/digits OUT\n", stderr);
    return 2;
  }
  try {
    const fs::path from = argv[1], to = argv[2];
    const int train = convert(from / "train.csv", to / "train");
    const int held = convert(from / "eval.csv", to / "held");
    std::printf("%d images in %s/train, %d in %s/held\n", train, argv[2], held, argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[digits_to_png] %s\n", error.what());
    return 1;
  }
}
