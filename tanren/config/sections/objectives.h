// [objectives.NAME]: the values of one objective of the task that replace the run's.
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
  std::optional<int64_t> every;           // has its turn every so many batches; unset: the task's
  std::map<std::string, double> weights;  // of terms; the other terms keep the task's weights
  // Whole sections: the reader fills in the run's value of each key that the table does not have
  // (objective_keys.h). A program that makes an entry itself copies the run's sections first.
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ClipOptions clip;
};

}  // namespace tanren
