// Which parts of another run's checkpoint fit a new run, and the plan's lines that say so. Called
// by fork.cpp. Internal to run/.
#pragma once

#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/identity.h"
#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"
#include "tanren/run/prepare.h"
#include "tanren/train/take_over.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

// A checkpoint and the run that is to continue from it, for comparison.
struct ForkLook {
  std::filesystem::path checkpoint;
  const Snapshot& saved;
  RunConfig before;  // the config that the checkpoint was written with
  const RunConfig& now;
  Facts data_before, data_now;
  const Prepared& prepared;
  std::vector<KeyChange> changes;             // of keys that define a run
  const std::vector<PlanLine>& lines_before;  // what the checkpoint's run took, if it is a fork

  bool differs(const std::string& key) const;
  // The name of the first fact about the data `part` ("data.train") that differs; empty: none does.
  // Facts that either side lacks are skipped.
  std::string other_fact(const std::string& part) const;
};

// Why the position in the data has no meaning in the new run; empty: it has.
std::string why_data_begin_anew(const ForkLook& look);

// Applied updates of the new run when it begins: those of its first objective.
int64_t first_step(const ForkLook& look);

TakenParts parts_that_fit(const ForkLook& look);

// The line on data.split: whether the weights were trained on rows that are evaluated here. With a
// smaller share than before, the evaluation rows are some of those that were evaluated there.
std::optional<PlanLine> fork_split_line(const ForkLook& look);
// The line if the columns of a table, what was measured of them, or the names of its classes differ
// from the checkpoint's. One file: fork_table.cpp.
std::optional<PlanLine> fork_table_line(const ForkLook& look);

// `step`: applied updates of the new run when it begins.
std::vector<PlanLine> fork_lines(const ForkLook& look, const TakenParts& parts, int64_t step);

}  // namespace tanren
