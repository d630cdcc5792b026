#include "tanren/run/fork.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/manifest.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/run/fork_parts.h"
#include "tanren/run/origin.h"
#include "tanren/run/run_folder.h"
#include "tanren/train/train_loop.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace tanren {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_fork(const fs::path& from, const std::string& what,
                              const std::string& advice) {
  throw ConfigError(fmt::format("[run] fork_from {}: {}; {}", from.string(), what, advice));
}

fs::path real_place(const fs::path& path) {
  std::error_code none;
  return fs::weakly_canonical(fs::absolute(path), none);
}

// The run folder of a step folder; empty if the step folder lies somewhere else.
fs::path run_of_checkpoint(const fs::path& step_folder) {
  const fs::path above = step_folder.parent_path();
  return above.filename() == "checkpoints" ? above.parent_path() : fs::path();
}

constexpr size_t kMostShown = 4;  // tensors of each sort

std::string listed(const char* what, std::vector<std::string> names) {
  if (names.empty()) return "";
  const size_t all = names.size();
  names.resize(std::min(all, kMostShown));
  if (all > kMostShown) names.push_back(fmt::format("and {} more", all - kMostShown));
  return fmt::format(", {} {} ({})", all, what, join(names));
}

std::string shape_of(const at::Tensor& tensor) { return c10::str(tensor.sizes()); }

// Floating tensors of any dtype fit, since they are converted.
bool is_alike(const at::Tensor& one, const at::Tensor& other) {
  const bool floats = one.is_floating_point() && other.is_floating_point();
  return one.sizes() == other.sizes() && (floats || one.scalar_type() == other.scalar_type());
}

void check_model(const fs::path& checkpoint, const TensorMap& here, const TensorMap& there) {
  std::vector<std::string> other, only_here, only_there;
  for (const auto& [name, tensor] : here) {
    const at::Tensor* const theirs = there.find(name);
    if (theirs == nullptr) {
      only_here.push_back(name + " " + shape_of(tensor));
    } else if (!is_alike(tensor, *theirs)) {
      other.push_back(
          fmt::format("{} {} there, {} here", name, shape_of(*theirs), shape_of(tensor)));
    }
  }
  for (const auto& [name, tensor] : there) {
    if (!here.contains(name)) only_there.push_back(name + " " + shape_of(tensor));
  }
  if (other.empty() && only_here.empty() && only_there.empty()) return;
  const size_t fit = here.size() - other.size() - only_here.size();
  refuse_fork(checkpoint,
              fmt::format("another model: {} of {} tensors fit{}{}{}", fit, here.size(),
                          listed("of another shape", other), listed("only here", only_here),
                          listed("only there", only_there)),
              fmt::format("keep its [model], or begin at step 0 with the weights that fit: "
                          "--set model.init_from={} and --set model.init_skip=… in place of the "
                          "fork",
                          checkpoint.string()));
}

// Epochs count steps only where the data and their batches are as before.
void check_epochs(const ForkLook& look, const std::string& anew, int64_t step, const Cursor& at) {
  const Plan& plan = look.prepared.plan;
  std::string why = anew;
  for (const char* key : {"batch.global_batch", "data.last"}) {
    if (why.empty() && look.differs(key)) why = std::string("another ") + key;
  }
  if (!plan.length.epochs || why.empty()) return;
  const int64_t batch = std::max<int64_t>(plan.batch.global_batch, 1);
  const int64_t used = at.epoch * plan.batch.steps_per_epoch + (at.consumed + batch - 1) / batch;
  const int64_t left =
      std::max<int64_t>(*plan.length.epochs * plan.batch.steps_per_epoch - used, 1);
  refuse_fork(
      look.checkpoint,
      fmt::format("its {} steps and run.epochs do not go together ({})", to_text(step), why),
      fmt::format("give the length in steps, from the first run's beginning: --set "
                  "run.epochs=none --set run.steps={}",
                  to_text(step + left)));
}

// A run that is at its end would train nothing.
void check_end(const ForkLook& look, const TakenParts& parts, int64_t step, const Cursor& at) {
  const Plan& plan = look.prepared.plan;
  if (reached_length(plan, step, at)) {
    refuse_fork(look.checkpoint,
                fmt::format("after its step {} the run is at its end ({})", to_text(step),
                            plan.length.steps ? "run.steps = " + to_text(*plan.length.steps)
                                              : "run.epochs = " + to_text(*plan.length.epochs)),
                "raise run.steps or run.epochs, or fork an earlier step folder of it");
  }
  if (!parts.evaluations) return;
  Selection selection;
  selection.load(part_below(look.saved.run, "selection"));
  selection.adopt(plan);
  const std::string reason = selection.end_reason(plan);
  if (reason.empty()) return;
  refuse_fork(look.checkpoint, "the run ended early (" + reason + ")",
              "raise early_stop.patience (0: off), or fork an earlier step folder of it");
}

// Applied updates of the new run's first objective.
int64_t first_step(const ForkLook& look) {
  const ObjectivePlan& first = look.prepared.plan.objectives.front();
  const std::string key = "objective." + first.phase + "." + first.name + ".step";
  return look.saved.run.values.count(key) > 0 ? value_of<int64_t>(look.saved.run, key) : 0;
}

}  // namespace

fs::path start_of_fork(const fs::path& checkpoint, const RunConfig& config) {
  const RunConfig before = recorded_config(checkpoint);
  const bool is_same = before.model.from_hf == config.model.from_hf &&
                       before.data.train.tokenizer == config.data.train.tokenizer &&
                       before.data.eval.tokenizer == config.data.eval.tokenizer;
  return is_same ? run_of_checkpoint(checkpoint) : fs::path();
}

void check_fork_folder(const RunConfig& config, const fs::path& folder) {
  if (config.run.fork_from.empty()) return;
  const fs::path from = real_place(config.run.fork_from), own = real_place(folder);
  const fs::path run = step_of(from) >= 0 ? run_of_checkpoint(from) : from;
  if (run != own) return;
  // A fork that was moved to where the other run was is itself by now.
  std::error_code none;
  const bool is_fork = fs::exists(own / "config.toml", none) &&
                       recorded_config(own).run.fork_from == config.run.fork_from;
  if (is_fork) return;
  refuse_fork(config.run.fork_from, "it is the folder of this run itself",
              "a fork is a new run: name another folder with --out");
}

std::optional<fs::path> checkpoint_to_fork(const RunConfig& config) {
  const std::string& named = config.run.fork_from;
  if (named.empty()) return std::nullopt;
  const fs::path place = real_place(named);
  std::error_code none;
  if (!fs::is_directory(place, none)) {
    refuse_fork(named, fs::exists(place, none) ? "it is no folder" : "it does not exist",
                "name a run folder, or one of its step folders");
  }
  if (step_of(place) >= 0) {
    if (is_complete(place)) return place;
    refuse_fork(named, "its save was never completed (no COMPLETE in it)",
                "name another step folder, or the run folder");
  }
  if (!fs::exists(place / "config.toml", none)) {
    refuse_fork(named, "it is no run folder (no config.toml in it)",
                "name a run folder, or one of its step folders");
  }
  const auto latest = latest_checkpoint(place / "checkpoints");
  if (latest) return *latest;
  refuse_fork(named, "it has no complete checkpoint",
              "let it save one first (checkpoint.every, or a stop), or drop run.fork_from");
}

Fork plan_fork(const fs::path& checkpoint, const RunConfig& config, const Prepared& prepared,
               const Facts& data) {
  Fork fork{.checkpoint = checkpoint, .parts = {}, .lines = {}, .snapshot = nullptr};
  fork.snapshot = std::make_shared<const Snapshot>(read_checkpoint(checkpoint));
  ForkLook look{.checkpoint = checkpoint,
                .saved = *fork.snapshot,
                .before = recorded_config(checkpoint),
                .now = config,
                .data_before = read_origin(checkpoint).data,
                .data_now = data,
                .prepared = prepared,
                .changes = {}};
  look.changes = defining_changes(look.before, config);
  check_model(checkpoint, tensors_of(*prepared.task.module), look.saved.model.tensors);
  fork.parts = parts_that_fit(look);
  const int64_t step = first_step(look);
  Cursor at;
  if (fork.parts.position) {
    at = {value_of<int64_t>(look.saved.run, "epoch"),
          value_of<int64_t>(look.saved.run, "consumed")};
  }
  check_epochs(look, why_data_begin_anew(look), step, at);
  check_end(look, fork.parts, step, at);
  fork.lines = fork_lines(look, fork.parts, step);
  return fork;
}

}  // namespace tanren
