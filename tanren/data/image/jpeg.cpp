// JPEG through libjpeg-turbo: decodes only the rows and columns that are needed, at a fraction of
// the size if asked. Data after the last needed row is never read. Each scan of a progressive file
// passes over the whole image and needs only a few bytes, so the number of scans has a limit.
#include "tanren/data/image/decode.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <string>

#include <jpeglib.h>

#include <jerror.h>

namespace tanren {

namespace {

// Warnings of libjpeg after which the pixels are made up; other warnings are harmless.
bool spoils_pixels(int code) {
  switch (code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION: return true;
    default: return false;
  }
}

constexpr int kMostScans = 100;  // programs write about ten

// A decompressor whose errors are exceptions. libjpeg is C and must be left by longjmp, so each
// call into it goes through guarded(). The function passed to guarded() may hold nothing with a
// destructor.
class Decompressor {
 public:
  Decompressor() {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) {
      auto* self = static_cast<Decompressor*>(info->client_data);
      info->err->format_message(info, self->message_);
      std::longjmp(self->jump_, 1);
    };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level >= 0 || !spoils_pixels(info->err->msg_code)) return;
      info->err->error_exit(info);
    };
    errors_.output_message = [](j_common_ptr) {};
    guarded([&] { jpeg_create_decompress(&info_); });
    progress_.progress_monitor = [](j_common_ptr info) {
      auto* const self = static_cast<Decompressor*>(info->client_data);
      if (self->info_.input_scan_number <= kMostScans) return;
      std::snprintf(self->message_, sizeof self->message_, "it has more than %d scans", kMostScans);
      std::longjmp(self->jump_, 1);
    };
    info_.progress = &progress_;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  jpeg_decompress_struct& info() { return info_; }

  template <class F>
  void guarded(F&& call) {
    if (setjmp(jump_) != 0) throw BrokenImage(std::string("JPEG: ") + message_);
    call();
  }

 private:
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  char message_[JMSG_LENGTH_MAX] = "";
};

// Converts four bytes a pixel to three. Adobe's programs store CMYK inverted and mark such files.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, size_t pixels, bool inverted) {
  const auto flip = static_cast<uint8_t>(inverted ? 0 : 255);
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const unsigned black = cmyk[3] ^ flip;
    for (size_t c = 0; c < 3; ++c) {
      const unsigned product = static_cast<unsigned>(cmyk[c] ^ flip) * black + 128;
      rgb[c] = static_cast<uint8_t>((product + (product >> 8)) >> 8);  // / 255, rounded
    }
  }
}

}  // namespace

void decode_jpeg(std::string_view bytes, const DecodeRequest& request, std::vector<uint8_t>& rows,
                 const RowSink& sink) {
  Decompressor jpeg;
  auto& info = jpeg.info();
  const auto& need = request.need;
  bool cmyk = false;
  jpeg.guarded([&] {
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info, TRUE);
    cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
    info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    info.scale_num = 1;
    info.scale_denom = static_cast<unsigned>(request.divisor);
  });
  if (info.image_width != request.header.width || info.image_height != request.header.height) {
    throw BrokenImage("JPEG: its size has changed");
  }
  jpeg.guarded([&] { jpeg_start_decompress(&info); });

  // Chroma interpolation at the edge of the box uses the blocks beside it: decode one more block on
  // each side, so that the pixels are those of the whole image.
  const int64_t block = info.max_h_samp_factor * info.min_DCT_scaled_size;
  const int64_t block_rows = info.max_v_samp_factor * info.min_DCT_scaled_size;
  const int64_t from = std::max<int64_t>(need.x0 / block - 1, 0) * block;
  auto first = static_cast<JDIMENSION>(from);
  auto width = static_cast<JDIMENSION>(
      std::min<int64_t>((need.x1 + block - 1) / block * block + block, info.output_width) - from);
  if (width < info.output_width) {
    jpeg.guarded([&] { jpeg_crop_scanline(&info, &first, &width); });
  }
  const int64_t skip = std::max<int64_t>(need.y0 / block_rows - 1, 0) * block_rows;
  if (skip > 0) {
    jpeg.guarded([&] { jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(skip)); });
  }

  const size_t raw = size_t{info.output_width} * (cmyk ? 4 : 3);
  rows.resize(raw + (cmyk ? size_t{info.output_width} * 3 : 0));
  JSAMPROW row = rows.data();
  const uint8_t* const pixels = rows.data() + (cmyk ? raw : 0);
  const auto offset = static_cast<size_t>(need.x0 - first) * 3;
  for (int64_t y = info.output_scanline; y < need.y1; ++y) {
    jpeg.guarded([&] { jpeg_read_scanlines(&info, &row, 1); });
    if (y < need.y0) continue;
    if (cmyk) cmyk_to_rgb(row, rows.data() + raw, info.output_width, info.saw_Adobe_marker != 0);
    sink(y, pixels + offset);
  }
}

}  // namespace tanren
