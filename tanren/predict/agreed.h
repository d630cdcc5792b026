// Passes what only rank 0 finds out to all ranks. Called by predict_file.
#pragma once

#include "tanren/base/error.h"
#include "tanren/comm/exchange.h"
#include "tanren/parallel/ranks.h"

#include <string>

namespace tanren {

// Returns rank 0's make() on every rank, or throws its InputError on every rank.
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
