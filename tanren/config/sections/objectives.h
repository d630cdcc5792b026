// [objectives.NAME]: what one objective of the task has in place of the run's.
#pragma once

#include "tanren/config/sections/clip.h"
#include "tanren/config/sections/optimizer.h"
#include "tanren/config/sections/schedule.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tanren {

struct ObjectiveOptions {
  std::optional<int64_t> every;           // in turn at every so many batches; unset: the task's
  std::map<std::string, double> weights;  // of terms; a term that is not here keeps the task's
  // Whole sections: the reader fills in the run's value of each key that the table does not have
  // (objective_keys.h). A program that makes an entry itself copies the run's sections first.
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ClipOptions clip;
};

}  // namespace tanren
