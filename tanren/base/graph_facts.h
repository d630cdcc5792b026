// GraphFacts: what a plan must know of a task that one compiled graph computes (model/package.h). A
// compiled graph cannot be changed, so a plan must refuse every setting that the graph does not
// support. Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct GraphFacts {
  std::string precision;     // type that it computes in: fp32, fp64, bf16, fp16
  std::string device;        // cpu or cuda
  std::string torch;         // the version that compiled it
  std::string instructions;  // that it uses, in words: "avx512"
  std::string sizes;         // that it takes, in words: "tokens 8 to 64"
  std::string draws;         // its first operator that draws from torch's generator; empty: none
  std::string checksum;      // of all its code
  std::string class_name;    // of the Python module that was compiled
  std::string hf_config;     // its config.json for transformers, as text; empty: it has none
  std::vector<std::string> frozen;   // parameters that were compiled without gradients
  std::vector<std::string> changed;  // buffers that its forward changes
};

// How the message of a failure inside such a graph begins.
inline constexpr std::string_view kGraphFailure = "[model] the compiled graph";

}  // namespace tanren
