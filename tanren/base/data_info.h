// What a model needs to know of the data to build itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct DataInfo {
  std::vector<int64_t> input_shape;      // of one sample's "inputs"
  int64_t outputs = 0;                   // number of classes, or of regressed values
  bool class_labels = true;              // "labels" are int64 classes; else floating values
  std::vector<std::string> class_names;  // of class 0, 1, …; empty where classes have no names
  int64_t vocab_size = 0;  // token data: "inputs" are int64 ids in [0, vocab_size); 0: no tokens
  int64_t token_types =
      0;  // "token_types" are int64 numbers in [0, token_types); 0: there are none
};

}  // namespace tanren
