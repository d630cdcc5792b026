#include "tanren/formats/safetensors.h"
#include "tanren/interop/quantized_tensors.h"
#include "tests/fuzz/targets.h"

namespace tanren::fuzz {

bool quantized(std::string_view bytes) {
  static const Scratch scratch;
  const auto path = scratch.file("a.safetensors", bytes);
  return is_read([&] {
    const SafetensorsFile read = read_safetensors(path);
    const QuantizeNote note = quantize_note(read.metadata, "a");
    as_parameters(read.tensors, note, "a");
    const auto parameters = quantized_parameters(read.tensors, note, "a");
    for (const auto& [name, tensor] : expanded(read.tensors, note, "a")) tensor.clone();
    quantize_line(note);
  });
}

}  // namespace tanren::fuzz
