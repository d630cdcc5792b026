#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, RunOptions& o) {
  add("name", &o.name, Identity::free,
      "Name of the run and of its folder under runs/. Default: the file's stem.");
  add("seed", &o.seed, "Seed of initialisation, order, dropout. 0 or more.");
  add("steps", &o.steps, Identity::may_grow, "Length in applied updates, ≥ 1. This or run.epochs.");
  add("epochs", &o.epochs, Identity::may_grow,
      "Length in passes over the training data, ≥ 1. This or run.steps.");
  add("device", &o.device, Identity::free, "auto, cpu, cuda, cuda:<i>.");
  add("threads", &o.threads, Identity::free,
      "Threads that compute a step in each process, 0 to 4096; 0: the process's share of the cores "
      "it may use (the ranks of a machine divide them), at most what the model's operators can "
      "use.");
  add("deterministic", &o.deterministic,
      "Use only kernels that repeat bitwise (for CUDA; the CPU's always do).");
  add("debug", &o.debug, Identity::free,
      "Before the first step of each start, rank 0 shows the fields of its batch and every layer: "
      "class, output shape, parameters, dtypes.");
  add("stop_after", &o.stop_after, Identity::free,
      "Save and stop after so many applied steps of this start (≥ 1); the run can resume.");
  add("max_time", &o.max_time, Identity::free,
      "Time limit of each start, counted from the start of its process: by then the run has saved "
      "and stopped with exit code 130, and the same command resumes. A length such as 8h, 90m, "
      "1h30m or 2d, or a number of seconds.",
      TextKind::number_or_word);
  add("fork_from", &o.fork_from, Identity::by_name,
      "Run folder (its newest checkpoint), or one of its step folders, that a new run continues "
      "under its own config: it takes the weights, and optimizer state, counters and place in the "
      "data where these fit. That folder is only read, and only until the new run has a "
      "checkpoint. tanren run FOLDER --fork --out NEW sets this key. Relative to the config file.",
      TextKind::file);
}

namespace {

void check_fork(Problems& p, const RunConfig& config) {
  if (config.run.fork_from.empty()) return;
  p.check(config.model.init_from.empty(),
          "run.fork_from and model.init_from both give the weights; drop one");
  p.check(config.optimizer.init_from.empty(),
          "run.fork_from and optimizer.init_from both give the optimizer's state; drop one");
  for (const auto& [name, own] : config.objectives) {
    const std::string& file = own.optimizer.init_from;
    p.check(file.empty() || file == config.optimizer.init_from,  // reported above
            fmt::format("run.fork_from and objectives.{}.optimizer.init_from both give the "
                        "optimizer's state; drop one",
                        name));
  }
}

}  // namespace

void check_run(Problems& p, const RunConfig& config, const std::string& accelerator) {
  const RunOptions& o = config.run;
  p.check(o.steps || o.epochs, "run.steps and run.epochs are both missing; set one");
  p.check(!(o.steps && o.epochs),
          "run.steps and run.epochs are both set; keep one (--set run.epochs=none takes it back)");
  if (o.steps) p.count("run.steps", *o.steps, 1);
  if (o.epochs) p.count("run.epochs", *o.epochs, 1);
  if (o.stop_after) p.count("run.stop_after", *o.stop_after, 1);
  constexpr double kMostSeconds = 1e9;
  p.check(
      o.max_time.empty() || parse_seconds(o.max_time).value_or(2 * kMostSeconds) <= kMostSeconds,
      "run.max_time \"" + o.max_time +
          "\" is no length of time above 0; write 8h, 90m, 1h30m, or a number of seconds");
  check_fork(p, config);
  p.at_least("run.seed", o.seed, 0);
  p.within("run.threads", o.threads, 0, 4096, true);
  const auto device = read_device_name(o.device);
  const bool numbered = device && device->kind == accelerator && device->index >= 0;
  if (!numbered) {
    p.one_of("run.device", o.device, {"auto", "cpu", accelerator, device_name(accelerator, 0)});
  }
  const bool plain = o.name.find('/') == std::string::npos && o.name != "." && o.name != "..";
  p.check(plain, "run.name \"" + o.name +
                     "\" names a folder under runs/; give it no slash and more than dots");
  bool printable = o.name.size() <= 200;
  for (const unsigned char c : o.name) printable = printable && c >= 0x20 && c != 0x7f;
  p.check(printable, "run.name has control characters or more than 200 bytes; give a plain name");
}

}  // namespace tanren
