// [predict]: what tanren predict writes beside each row.
#pragma once

#include <string>

namespace tanren {

struct PredictOptions {
  std::string scores = "best";   // best: the label's score; all: that of every class
  std::string broken = "error";  // a row that cannot be read: error, skip
};

}  // namespace tanren
