// What rank 0 alone finds out, as all ranks know it. Called by predict_file.
#pragma once

#include "tanren/base/error.h"
#include "tanren/comm/exchange.h"
#include "tanren/parallel/ranks.h"

#include <string>

namespace tanren {

// The same on every rank: rank 0's, or its error on all.
template <typename Make>
std::string agreed(const Ranks& ranks, const Make& make) {
  std::string text, problem;
  if (ranks.world().is_first()) {
    try {
      text = make();
    } catch (const InputError& error) {
      problem = error.what();
    }
  }
  if (!ranks.world().alone()) {
    Communicator& comm = ranks.world().communicator();
    problem = gather_texts(comm, problem).front();
    text = gather_texts(comm, text).front();
  }
  if (!problem.empty()) throw InputError(problem);
  return text;
}

}  // namespace tanren
