// RunConfig: what the user asked for, one struct per section, each default at its field.
// Torch-free. Filled from TOML and --set by read_config.h, checked as a whole by validate.h. The
// names of the fields are those of the config file, the log and the documentation.
// sections/<section>.h has the struct of a section, sections/<section>.cpp its keys and checks.
#pragma once

#include "tanren/config/sections/average.h"
#include "tanren/config/sections/batch.h"
#include "tanren/config/sections/checkpoint.h"
#include "tanren/config/sections/clip.h"
#include "tanren/config/sections/data.h"
#include "tanren/config/sections/early_stop.h"
#include "tanren/config/sections/evaluate.h"
#include "tanren/config/sections/generate.h"
#include "tanren/config/sections/guard.h"
#include "tanren/config/sections/memory.h"
#include "tanren/config/sections/metrics.h"
#include "tanren/config/sections/model.h"
#include "tanren/config/sections/objectives.h"
#include "tanren/config/sections/optimizer.h"
#include "tanren/config/sections/parallel.h"
#include "tanren/config/sections/precision.h"
#include "tanren/config/sections/predict.h"
#include "tanren/config/sections/quantize.h"
#include "tanren/config/sections/run.h"
#include "tanren/config/sections/schedule.h"
#include "tanren/config/sections/sweep.h"

#include <map>
#include <set>
#include <string>

namespace tanren {

struct RunConfig {
  RunOptions run;
  ModelOptions model;
  DataOptions data;
  BatchOptions batch;
  PrecisionOptions precision;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ClipOptions clip;
  std::map<std::string, ObjectiveOptions> objectives;  // by the name of the task's objective
  GuardOptions guard;
  MemoryOptions memory;
  ParallelOptions parallel;
  AverageOptions average;
  EvaluateOptions evaluate;
  EarlyStopOptions early_stop;
  CheckpointOptions checkpoint;
  MetricsOptions metrics;
  GenerateOptions generate;
  PredictOptions predict;
  QuantizeOptions quantize;
  SweepOptions sweep;
  std::set<std::string> asked;  // full keys that the file or --set gave
};

}  // namespace tanren
