// Sample: what a model is asked about, without a label. Each kind of data reads its own members;
// the others stay empty.
#pragma once

#include "tanren/base/tensor_map.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct Sample {
  std::string text, pair;       // text_table; `pair` for models of pairs of texts
  std::vector<double> numbers;  // csv: in the order of DataInfo::feature_names, as in the file
  std::map<std::string, std::string> cells;  // csv: or texts by the names of columns
  std::vector<float> inputs;                 // csv: or as DataInfo::table encodes them
  std::string image;                         // images: the bytes of a JPEG or PNG
  std::string image_file;                    // images: or its file, read when it is needed
  TensorMap tensors;                         // other kinds: every field, [1, …]

  static Sample of_text(std::string text, std::string pair = {}) {
    Sample sample;
    sample.text = std::move(text);
    sample.pair = std::move(pair);
    return sample;
  }
  static Sample of_numbers(std::vector<double> numbers) {
    Sample sample;
    sample.numbers = std::move(numbers);
    return sample;
  }
  // Columns beside those that the model reads are left alone.
  static Sample of_cells(std::map<std::string, std::string> cells) {
    Sample sample;
    sample.cells = std::move(cells);
    return sample;
  }
  static Sample of_image(std::string bytes) {
    Sample sample;
    sample.image = std::move(bytes);
    return sample;
  }
  static Sample of_tensors(TensorMap tensors) {
    Sample sample;
    sample.tensors = std::move(tensors);
    return sample;
  }
};

}  // namespace tanren
