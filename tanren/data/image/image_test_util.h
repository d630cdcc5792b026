// Image files for tests: those of tests/fixtures/images.safetensors, and JPEGs made on the spot.
// Included by tests only.
#pragma once

#include "tanren/formats/safetensors.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <jpeglib.h>

namespace tanren::testing {

class ImageFixtures {
 public:
  ImageFixtures()
      : file_(read_safetensors(std::filesystem::path(TANREN_SOURCE_DIR) /
                               "tests/fixtures/images.safetensors")) {}

  std::string bytes(const std::string& name) const {
    const at::Tensor& data = file_.tensors.at(name + ".file");
    return {reinterpret_cast<const char*>(data.const_data_ptr()),
            static_cast<size_t>(data.numel())};
  }
  // uint8 [3, h, w] as torchvision makes it.
  const at::Tensor& expected(const std::string& name) const {
    return file_.tensors.at(name + ".expected");
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& [name, tensor] : file_.tensors) {
      const auto dot = name.find(".file");
      if (dot != std::string::npos) found.push_back(name.substr(0, dot));
    }
    return found;
  }

 private:
  SafetensorsFile file_;
};

struct JpegKind {
  bool progressive = false;
  int across = 2, down = 2;  // chroma is stored at 1/across × 1/down
  int bands = 0;             // progressive: coefficients that have a scan of their own; 0: as usual
};

// Fills `row` with the RGB bytes of row y.
using RowPainter = void (*)(int width, int y, unsigned char* row);

inline void paint_waves(int width, int y, unsigned char* row) {
  for (int x = 0; x < width; ++x) {
    auto* pixel = row + 3 * static_cast<size_t>(x);
    pixel[0] = static_cast<unsigned char>(x * 7 + y);
    pixel[1] = static_cast<unsigned char>((x / 5 + y / 3) % 2 * 200);
    pixel[2] = static_cast<unsigned char>(255 - y * 3);
  }
}

// A JPEG of waves; any size, row by row.
inline std::string make_jpeg(int width, int height, const JpegKind& kind = {},
                             RowPainter paint = paint_waves) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  info.comp_info[0].h_samp_factor = kind.across;
  info.comp_info[0].v_samp_factor = kind.down;
  if (kind.progressive) jpeg_simple_progression(&info);
  std::vector<jpeg_scan_info> scans;
  if (kind.bands > 0) {
    scans.push_back({3, {0, 1, 2}, 0, 0, 0, 0});
    for (int component = 0; component < 3; ++component) {
      for (int band = 1; band <= kind.bands; ++band) {
        const int last = band == kind.bands ? 63 : band;
        scans.push_back({1, {component}, band, last, 0, 0});
      }
    }
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  std::vector<unsigned char> row(static_cast<size_t>(width) * 3);
  for (int y = 0; y < height; ++y) {
    paint(width, y, row.data());
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&info, &rows, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<char*>(data), size);
  jpeg_destroy_compress(&info);
  std::free(data);
  return bytes;
}

// A JPEG with a white and a black half, side by side. No block crosses the middle if the width is a
// multiple of 32.
inline std::string make_halves(int width, int height) {
  return make_jpeg(width, height, {}, [](int across, int, unsigned char* row) {
    for (int i = 0; i < 3 * across; ++i) row[i] = i < 3 * (across / 2) ? 255 : 0;
  });
}

}  // namespace tanren::testing
