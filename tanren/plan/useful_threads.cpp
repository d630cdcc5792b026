#include "tanren/plan/useful_threads.h"

#include "tanren/base/text.h"

#include <algorithm>

namespace tanren {

namespace {

// The work that one thread must have for a second one to help: torch's own grain of element-wise
// operators, and a matrix product or a pass of the optimizer of some tenths of a millisecond.
// Chosen from 13 small models on two cores that other programs used too; not yet measured on a
// quiet machine (benchmarks/busy_bench).
constexpr int64_t kElements = 32'768;
constexpr int64_t kMultiplyAdds = 2 << 20;
constexpr int64_t kParameters = 1 << 19;

}  // namespace

int64_t useful_threads(const OperatorSizes& sizes) {
  return std::max({sizes.elements / kElements, sizes.multiply_adds / kMultiplyAdds,
                   sizes.parameters / kParameters, int64_t{1}});
}

bool limit_threads(const OperatorSizes& sizes, Plan& plan) {
  const int64_t most = useful_threads(sizes);
  const bool unknown = sizes.elements == 0;
  if (unknown || plan.run.threads > 0 || plan.device.device != "cpu" ||
      plan.device.threads <= most) {
    return false;
  }
  const int64_t before = plan.device.threads;
  plan.device.threads = most;
  for (PlanLine& line : plan.lines) {
    if (line.key != "threads") continue;
    line.value = to_text(most);
    line.reason = fmt::format(
        "the largest operators of a microbatch have {} results and {} multiply-adds: of {} threads "
        "{} would only wait; run.threads sets another number",
        count_text(sizes.elements), count_text(sizes.multiply_adds), to_text(before),
        to_text(before - most));
  }
  return true;
}

}  // namespace tanren
