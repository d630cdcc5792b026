// manifest.json of a package: the description that python/tanren_export.py writes of the graphs
// that it compiled. The reader trusts nothing: it accepts only a manifest that is consistent, so
// that its values can be used as indices and names without further checks. Torch-free. Called by
// package.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

struct PackageManifest {
  // Range of a size that fields name: "batch", "tokens", …
  struct Range {
    int64_t min = 1, max = 1, multiple = 1;
  };
  struct Parameter {
    std::string name, dtype;  // of Python, with dots; "float32", "int64", …
    std::vector<int64_t> sizes;
    std::optional<int64_t> gradient;  // which output of the training graph; no value: it has none
    bool is_frozen = false;           // exported as frozen, its modules in eval mode
  };
  struct Buffer {
    std::string name, dtype;
    std::vector<int64_t> sizes;
    std::optional<int64_t> output;  // training graph's output that replaces it; no value: none
  };
  struct Size {
    std::string name;  // of `ranges`; empty: `number`
    int64_t number = 0;
  };
  struct Field {
    std::string name, dtype;
    std::vector<Size> sizes;  // the first is "batch"
    // The least and the largest of the field's values if they are indices; no value: any values.
    std::optional<std::pair<int64_t, int64_t>> values;
    std::optional<int64_t> ignored;  // also allowed, never used as an index: a label
  };
  struct Summed {
    std::string name;
    double weight = 1;
    std::string count;
  };

  std::string torch, device, machine;
  std::vector<std::string> processor_flags;  // as /proc/cpuinfo names them
  std::string precision;                     // fp32, fp64, bf16, fp16: that the graphs compute in
  std::string class_name;                    // of the Python module
  int64_t multiply_adds = 0;                 // of a sample's forward; 0: unknown
  std::string draws;             // the first operator that draws from torch's generator; or empty
  bool couples_samples = false;  // batch norm in training mode
  std::map<std::string, std::string> files;  // XXH3 of each, 16 hexadecimal digits
  std::map<std::string, Range> ranges;
  std::vector<Parameter> parameters;        // in the order of the graphs' inputs
  std::map<std::string, std::string> tied;  // second name of a parameter → first name
  std::vector<Buffer> buffers;              // in the order of the graphs' inputs
  std::vector<Field> fields;                // in the order of the graphs' inputs
  std::vector<Summed> terms;                // the first outputs of the graphs
  int64_t outputs = 0;                      // number of the training graph's outputs
  std::string targets;               // the field that scores are compared with; empty: no scores
  std::vector<std::string> metrics;  // names, or "classes", "values"
  int64_t classes = 0;               // scores of a target; 0: unknown, or none

  // dtype of floating parameters, buffers, seeds and sums of terms.
  std::string_view float_dtype() const { return precision == "fp64" ? "float64" : "float32"; }
};

// ConfigError, one line beginning with "[model] " and `file`, for a text that is no such manifest,
// or one of another version.
PackageManifest parse_package_manifest(std::string_view text, const std::string& file);

}  // namespace tanren
