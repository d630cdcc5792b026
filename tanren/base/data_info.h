// DataInfo: the facts about the data that a model needs to build itself.
#pragma once

#include "tanren/base/table_encoding.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// The files of a tokenizer by their usual names ("vocab.txt"), as text.
using TokenizerFiles = std::map<std::string, std::string>;

inline constexpr int64_t kAnySize = -1;  // a size in a shape that differs from batch to batch

struct DataInfo {
  std::vector<int64_t> input_shape;      // of one sample's "inputs"; kAnySize where it varies
  int64_t outputs = 0;                   // number of classes, or of regressed values
  bool class_labels = true;              // "labels" are int64 classes; else floating values
  std::vector<std::string> class_names;  // of class 0, 1, …; empty: classes have no names
  int64_t vocab_size = 0;  // token data: "inputs" are int64 ids in [0, vocab_size); 0: no tokens
  int64_t token_types =
      0;  // "token_types" are int64 numbers in [0, token_types); 0: there are none
  std::shared_ptr<const TokenizerFiles> tokenizer;  // it made the ids; null: unknown
  std::vector<std::string> feature_names;           // of a table's columns; empty: no names
  std::shared_ptr<const TableEncoding> table;  // of these columns; null: inputs are the numbers
  std::vector<int64_t> target_shape;  // of one sample's "labels", if they are pictures: [c, h, w]
};

}  // namespace tanren
