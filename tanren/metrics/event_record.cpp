#include "tanren/metrics/event_record.h"

#include "tanren/formats/png.h"
#include "tanren/metrics/crc32c.h"

#include <protozero/pbf_writer.hpp>

namespace tanren {

namespace {

using Writer = protozero::pbf_writer;

// Field numbers of tensorflow/core/util/event.proto, framework/summary.proto,
// framework/tensor.proto.
namespace event {
constexpr protozero::pbf_tag_type kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5,
                                  kSessionLog = 7;
}
namespace session_log {
constexpr protozero::pbf_tag_type kStatus = 1;
constexpr int32_t kStart = 1;
}  // namespace session_log
namespace summary {
constexpr protozero::pbf_tag_type kValue = 1;
}
namespace value {
constexpr protozero::pbf_tag_type kTag = 1, kSimpleValue = 2, kImage = 4, kTensor = 8,
                                  kMetadata = 9;
}
namespace image {
constexpr protozero::pbf_tag_type kHeight = 1, kWidth = 2, kColourSpace = 3, kEncoded = 4;
constexpr int32_t kRgb = 3;
}  // namespace image
namespace metadata {
constexpr protozero::pbf_tag_type kPluginData = 1;
}
namespace plugin_data {
constexpr protozero::pbf_tag_type kPluginName = 1;
}
namespace tensor {
constexpr protozero::pbf_tag_type kDtype = 1, kShape = 2, kStringValue = 8;
constexpr int32_t kString = 7;
}  // namespace tensor
namespace shape {
constexpr protozero::pbf_tag_type kDim = 2, kSize = 1;
}

void append_little_endian(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i) & 0xFF);
}

void append_head(Writer& writer, double wall_time, int64_t step) {
  writer.add_double(event::kWallTime, wall_time);
  if (step != 0) writer.add_int64(event::kStep, step);
}

protozero::data_view data(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

void append_record(std::string& out, std::string_view message) {
  std::string length;
  append_little_endian(length, message.size(), 8);
  out += length;
  append_little_endian(out, masked_crc32c(length), 4);
  out += message;
  append_little_endian(out, masked_crc32c(message), 4);
}

void append_file_version(std::string& out, double wall_time) {
  std::string message;
  Writer writer(message);
  append_head(writer, wall_time, 0);
  writer.add_string(event::kFileVersion, "brain.Event:2");
  append_record(out, message);
}

void append_session_start(std::string& out, double wall_time, int64_t step) {
  std::string message;
  Writer writer(message);
  append_head(writer, wall_time, step);
  {
    Writer session(writer, event::kSessionLog);
    session.add_enum(session_log::kStatus, session_log::kStart);
  }
  append_record(out, message);
}

void append_scalars(std::string& out, double wall_time, int64_t step, const NamedValues& values) {
  std::string message;
  Writer writer(message);
  append_head(writer, wall_time, step);
  {
    Writer all(writer, event::kSummary);
    for (const auto& [tag, number] : values) {
      Writer one(all, summary::kValue);
      one.add_string(value::kTag, data(tag));
      one.add_float(value::kSimpleValue, static_cast<float>(number));
    }
  }
  append_record(out, message);
}

void append_images(std::string& out, double wall_time, const ImageReport& report) {
  std::string message;
  Writer writer(message);
  append_head(writer, wall_time, report.step);
  {
    Writer all(writer, event::kSummary);
    for (const auto& picture : report.pictures) {
      const std::string png = png_of(picture.rgb, picture.width, picture.height);
      Writer one(all, summary::kValue);
      one.add_string(value::kTag, picture.tag);
      Writer content(one, value::kImage);
      content.add_int32(image::kHeight, static_cast<int32_t>(picture.height));
      content.add_int32(image::kWidth, static_cast<int32_t>(picture.width));
      content.add_int32(image::kColourSpace, image::kRgb);
      content.add_bytes(image::kEncoded, png);
    }
  }
  append_record(out, message);
}

void append_text(std::string& out, double wall_time, int64_t step, std::string_view tag,
                 std::string_view markdown) {
  std::string message;
  Writer writer(message);
  append_head(writer, wall_time, step);
  {
    Writer all(writer, event::kSummary);
    Writer one(all, summary::kValue);
    one.add_string(value::kTag, data(tag));
    {
      Writer about(one, value::kMetadata);
      Writer plugin(about, metadata::kPluginData);
      plugin.add_string(plugin_data::kPluginName, "text");
    }
    Writer content(one, value::kTensor);
    content.add_enum(tensor::kDtype, tensor::kString);
    {
      Writer dims(content, tensor::kShape);
      Writer dim(dims, shape::kDim);
      dim.add_int64(shape::kSize, 1);
    }
    content.add_bytes(tensor::kStringValue, data(markdown));
  }
  append_record(out, message);
}

}  // namespace tanren
