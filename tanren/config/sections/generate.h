// [generate]: what tanren generate writes with a language model, and tanren eval as its sample.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

struct GenerateOptions {
  std::string prompt;        // text, or token numbers ("15496 11") where no tokenizer is known
  int64_t tokens = 200;      // how many to add; 0: no sample
  double temperature = 1.0;  // 0: the most probable token each time
  int64_t top_k = 0;         // sample among the k most probable tokens; 0: all
  double top_p = 1.0;        // sample among the fewest tokens that hold this probability
  int64_t seed = 0;
  int64_t num_beams = 1;        // above 1: beam search, the most probable text
  double length_penalty = 1.0;  // compares beams that end at different lengths
  int64_t stop_token = -1;      // token that ends the text; -1: none
};

}  // namespace tanren
