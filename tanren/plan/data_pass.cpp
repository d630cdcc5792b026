#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

namespace tanren {

// The code that opened the data has counted the samples that data.split gives to evaluation.
// data.workers is the number of loader threads of a machine, whose ranks share its cores.
void plan_data(const Request& request, Plan& plan) {
  if (!request.profile.split.empty()) {
    plan.lines.push_back(
        {"data.split", to_text(request.config.data.split), Source::asked, request.profile.split});
  }
  const int64_t ranks = request.machine.local_ranks;
  const int64_t asked = request.config.data.workers;
  plan.data.workers = (asked + ranks - 1) / ranks;
  if (ranks == 1) return;
  plan.lines.push_back(
      {"loader_threads", to_text(plan.data.workers), Source::planned,
       fmt::format("of each rank: data.workers = {} over the {} ranks of this machine{}",
                   to_text(asked), to_text(ranks),
                   asked > 0 && asked < ranks ? ", at least one each" : "")});
}

}  // namespace tanren
