// Shared by the tests of text and tokens: windows as plain lists, and windows made the slow way.
#pragma once

#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace tanren::testing {

using Ids = std::vector<int64_t>;

struct Window {
  Ids inputs, labels;
  bool operator==(const Window&) const = default;
};

inline std::vector<Window> rows_of(const Collated& collated) {
  const at::Tensor& inputs = collated.batch["inputs"];
  const at::Tensor& labels = collated.batch["labels"];
  const auto width = inputs.size(1);
  std::vector<Window> rows;
  for (int64_t i = 0; i < inputs.size(0); ++i) {
    const auto* in = inputs.const_data_ptr<int64_t>() + i * width;
    const auto* out = labels.const_data_ptr<int64_t>() + i * width;
    rows.push_back({Ids(in, in + width), Ids(out, out + width)});
  }
  return rows;
}

inline Collated whole_of(const Dataset& dataset, bool training = false) {
  std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  return training ? dataset.collate_training(indices, {}) : dataset.collate(indices);
}

// The windows of `documents`, made token by token; the id `end` also ends a document.
inline std::vector<Window> windows_of(const std::vector<Ids>& documents, int64_t context,
                                      int64_t stride, bool training, int64_t end = -1) {
  Ids tokens, targets;  // targets[i] follows tokens[i]
  for (const auto& document : documents) {
    for (const auto& token : document) {
      if (!tokens.empty()) targets.push_back(token);
      tokens.push_back(token);
      if (targets.size() + 1 == tokens.size() && tokens.size() > 1) {
        const bool first = &token == &document.front();
        if (first || tokens[tokens.size() - 2] == end) targets.back() = -100;
      }
    }
  }
  std::vector<Window> windows;
  int64_t seen = 0;  // targets that are in a window
  for (int64_t begin = 0; seen < static_cast<int64_t>(targets.size()); begin += stride) {
    Window window{Ids(context, 0), Ids(context, -100)};
    for (int64_t i = 0; i < context; ++i) {
      const int64_t at = begin + i;
      if (at >= static_cast<int64_t>(targets.size())) break;
      window.inputs[i] = tokens[at];
      if (training || at >= seen) window.labels[i] = targets[at];
    }
    seen = std::max(seen, std::min<int64_t>(begin + context, targets.size()));
    windows.push_back(std::move(window));
  }
  return windows;
}

inline double counted(const std::vector<Window>& windows) {
  double count = 0;
  for (const auto& window : windows) {
    for (const auto label : window.labels) count += label != -100 ? 1 : 0;
  }
  return count;
}

}  // namespace tanren::testing
