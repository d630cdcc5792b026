#include "tanren/model/package_manifest.h"
#include "tests/fuzz/targets.h"

#include <set>

namespace tanren::fuzz {

// The indices and names of an accepted manifest are used without further checks.
bool package(std::string_view bytes) {
  return is_read([&] {
    const PackageManifest manifest = parse_package_manifest(bytes, "manifest.json");
    std::set<int64_t> outputs;
    const auto take = [&](const std::optional<int64_t>& output) {
      if (!output) return;
      const bool is_new = outputs.insert(*output).second;
      if (!is_new || *output < std::ssize(manifest.terms) || *output >= manifest.outputs) {
        throw std::logic_error("an output is no tensor's own");
      }
    };
    for (const auto& parameter : manifest.parameters) take(parameter.gradient);
    for (const auto& buffer : manifest.buffers) take(buffer.output);
    for (const auto& field : manifest.fields) {
      for (const auto& size : field.sizes) {
        if (!size.name.empty()) manifest.ranges.at(size.name);
      }
    }
    if (manifest.files.count("train.so") != 1) throw std::logic_error("there is no train.so");
  });
}

}  // namespace tanren::fuzz
