// TensorBoard events as the bytes of an event file: protobuf messages (tensorflow.Event) in
// TFRecord frames: length u64, masked CRC of the length u32, message, masked CRC of the message
// u32, all little endian. Pure functions that append one record each. Used by the TensorBoard sink.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace tanren {

// One frame around `message`.
void append_record(std::string& out, std::string_view message);

// The first record of a file: its format, "brain.Event:2".
void append_file_version(std::string& out, double wall_time);
// The second record of a file. Readers then discard the earlier events of `step` and later steps.
void append_session_start(std::string& out, double wall_time, int64_t step);
// Points of curves, named by their tags; TensorBoard keeps them as float32.
void append_scalars(std::string& out, double wall_time, int64_t step, const NamedValues& values);
// Pictures for the images tab, each encoded as PNG.
void append_images(std::string& out, double wall_time, const ImageReport& report);
// Markdown for the text tab.
void append_text(std::string& out, double wall_time, int64_t step, std::string_view tag,
                 std::string_view markdown);

}  // namespace tanren
