#include "tanren/data/image/decode.h"

namespace tanren {

void decode_image(std::string_view bytes, const DecodeRequest& request, std::vector<uint8_t>& rows,
                  const RowSink& sink) {
  if (request.header.format == ImageHeader::Format::jpeg) {
    decode_jpeg(bytes, request, rows, sink);
  } else {
    decode_png(bytes, request, rows, sink);
  }
}

}  // namespace tanren
