// text_table: texts, or pairs of them, each with a class or a value, as ids of a tokenizer. The
// file is tokenised once, when it is opened, on all cores; collate pads. Immutable, so thread-safe.
// Called by open_dataset, and by whole models to encode texts that have no label.
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/data/text/text_rows.h"
#include "tanren/data/text/tokenizer.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// The ids of all samples, one sample after the other.
struct EncodedTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> ends;    // where sample i ends in `ids`
  std::vector<int64_t> firsts;  // pairs: how many ids of sample i are of type 0; else empty
  int64_t cut = 0;              // samples that were longer than context

  int64_t size() const { return static_cast<int64_t>(ends.size()); }
  int64_t begin(int64_t sample) const {
    return sample == 0 ? 0 : ends[static_cast<size_t>(sample - 1)];
  }
  int64_t end(int64_t sample) const { return ends[static_cast<size_t>(sample)]; }
};

// Encodes the rows' texts as the model reads them, cut to options.context. ConfigError if the
// tokens that the tokenizer puts around a text leave no room for it; DataError naming a row without
// a token.
EncodedTexts encode_texts(const std::vector<TextRow>& rows, const Tokenizer& tokenizer,
                          const SourceOptions& options, const std::string& what);

// Returns "inputs" and "attention_mask", int64 [n, T], and for pairs "token_types" too. T is
// options.context; with padding "longest" it is the length of the longest of `indices`, rounded up
// to a multiple of 8, at most options.context.
TensorMap padded_fields(const EncodedTexts& texts, const std::vector<int64_t>& indices,
                        const SourceOptions& options, int64_t pad_token);

// The id of [PAD] or <pad>; 0 if the tokenizer has neither.
int64_t pad_token_of(const Tokenizer& tokenizer);

}  // namespace tanren
