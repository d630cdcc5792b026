// tanren with the simulated accelerator, for tests: run.device = "sim".
#include "tanren/cli.h"
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/accelerator/kind.h"

#include <cstdio>

int main(int argc, char** argv) {
  tanren::sim::install();
  const int code =
      tanren::cli::main(argc, argv, tanren::Registry({}, {}, tanren::sim::accelerator_kind()));
  const auto violations = tanren::sim::take_violations();
  for (const auto& line : violations) std::fprintf(stderr, "violation: %s\n", line.c_str());
  return violations.empty() ? code : 99;
}
