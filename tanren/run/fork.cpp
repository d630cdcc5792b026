#include "tanren/run/fork.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/manifest.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/comm/exchange.h"
#include "tanren/run/fork_parts.h"
#include "tanren/run/fork_place.h"
#include "tanren/run/origin.h"
#include "tanren/run/run_folder.h"
#include "tanren/train/train_loop.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_fork(const fs::path& from, const std::string& what,
                              const std::string& advice) {
  throw ConfigError(fmt::format("[run] fork_from {}: {}; {}", from.string(), what, advice));
}

constexpr size_t kMostShown = 4;  // tensors of each sort
constexpr int kMostOpenings = 5;  // to open a save that its run replaces

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

// Norms are folded, and scales measured, at step 0 alone.
void check_rounding(const ForkLook& look) {
  for (const char* key : {"quantize.scheme", "quantize.keep"}) {
    if (!look.differs(key)) continue;
    refuse_fork(look.checkpoint, std::string("another ") + key,
                fmt::format("keep it, or begin at step 0 with the weights: --set "
                            "model.init_from={} in place of the fork",
                            look.checkpoint.string()));
  }
}

// ConfigError if run.epochs cannot count the fork's steps. Epochs do so only if the data and their
// batches are as before.
void check_epochs(const ForkLook& look, const std::string& anew, int64_t step, const Cursor& at) {
  const Plan& plan = look.prepared.plan;
  if (!plan.length.epochs) return;
  std::string why = anew;
  for (const char* key : {"batch.global_batch", "data.last"}) {
    if (why.empty() && look.differs(key)) why = std::string("another ") + key;
  }
  const int64_t batch = std::max<int64_t>(plan.batch.global_batch, 1);
  const int64_t used = at.epoch * plan.batch.steps_per_epoch + (at.consumed + batch - 1) / batch;
  const int64_t attempts = value_of<int64_t>(look.saved.run, "attempt");
  if (why.empty() && used != attempts) {
    why = fmt::format("it is a fork, and {} of its {} batches are of its own epochs", to_text(used),
                      to_text(attempts));
  }
  if (why.empty()) return;
  const int64_t left =
      std::max<int64_t>(*plan.length.epochs * plan.batch.steps_per_epoch - used, 1);
  refuse_fork(
      look.checkpoint,
      fmt::format("its {} and run.epochs do not go together ({})", counted(step, "step"), why),
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

}  // namespace

std::optional<ForkSource> open_fork(const fs::path& checkpoint) {
  const std::string mark = marker_of(checkpoint);
  if (mark.empty()) return std::nullopt;
  std::shared_ptr<const Snapshot> snapshot;
  try {
    snapshot = std::make_shared<const Snapshot>(read_checkpoint(checkpoint));
  } catch (const std::exception&) {
    if (marker_of(checkpoint) == mark) throw;
  }
  if (marker_of(checkpoint) != mark) return std::nullopt;  // some files may be of another save
  Origin origin = parse_origin(snapshot->origin, checkpoint);
  ForkSource source{.checkpoint = checkpoint,
                    .opened = checkpoint,
                    .mark = mark,
                    .snapshot = snapshot,
                    .config = recorded_config_in(snapshot->config_toml, checkpoint / "config.toml"),
                    .data = std::move(origin.data),
                    .lines = std::move(origin.fork)};
  // A name with a dot is temporary: the folder has it only until a newer save of its step is
  // complete.
  if (source.checkpoint.filename().string().starts_with(".")) {
    source.checkpoint = checkpoint.parent_path() / fmt::format("step-{}", step_of(checkpoint));
  }
  return source;
}

std::optional<ForkSource> choose_fork(const RunConfig& config, bool chosen) {
  for (int tries = 0; tries < kMostOpenings; ++tries) {
    const auto checkpoint = checkpoint_to_fork(config, chosen);
    if (!checkpoint) return std::nullopt;
    auto source = open_fork(*checkpoint);
    if (source) return source;
  }
  refuse_fork(
      config.run.fork_from,
      fmt::format("its run replaced each of {} checkpoints while they were read", kMostOpenings),
      "let it save less often (checkpoint.every), or fork it when it has stopped");
}

namespace {

constexpr const char* kReplaced = "replaced";

bool was_replaced(const fs::path& place, const std::string& mark) {
  try {
    return marker_of(place) != mark;
  } catch (const InputError&) {  // the rank that reads it reports this
    return false;
  }
}

// Opens rank 0's choice on another rank. Returns why that failed; empty: it did not.
std::string open_alike(const fs::path& place, const std::string& mark,
                       std::optional<ForkSource>& source) {
  std::error_code none;
  if (!fs::exists(place, none)) {
    return fmt::format(
        "does not see {}; put the run folder where every machine reaches it under "
        "one path",
        place.string());
  }
  try {
    source = open_fork(place);
  } catch (const InputError&) {
    return "cannot read the checkpoint: " + line_of_current();
  }
  return source && source->mark == mark ? "" : kReplaced;
}

}  // namespace

std::optional<ForkSource> agreed_fork(Communicator& ranks,
                                      const std::function<std::optional<ForkSource>()>& choose) {
  const bool is_first = ranks.rank() == 0;
  for (int tries = 1;; ++tries) {
    std::optional<ForkSource> source;
    if (is_first) source = choose();
    if (ranks.world_size() == 1) return source;
    const fs::path place =
        gather_texts(ranks, source ? fs::absolute(source->opened).string() : "")[0];
    if (place.empty()) return std::nullopt;
    const std::string mark = gather_texts(ranks, source ? source->mark : "")[0];
    const auto misfits = gather_texts(ranks, is_first ? "" : open_alike(place, mark, source));
    const auto failed = std::find_if(misfits.begin(), misfits.end(),
                                     [](const std::string& misfit) { return !misfit.empty(); });
    if (failed == misfits.end()) return source;
    const bool is_replaced = std::count(misfits.begin(), misfits.end(), kReplaced) > 0 ||
                             (is_first && was_replaced(place, mark));
    const bool again = gather_texts(ranks, is_first && is_replaced ? "again" : "")[0] == "again";
    if (again && tries < kMostOpenings) continue;
    settle(ranks);
    throw CheckpointError(fmt::format(
        "[run] rank {} {}", failed - misfits.begin(),
        *failed != kReplaced ? *failed
                             : "read another save than rank 0 of " + place.string() +
                                   "; fork that run when it has stopped, or an older step of it"));
  }
}

fs::path start_of_fork(const ForkSource& source, const RunConfig& config) {
  const RunConfig& before = source.config;
  const bool is_same = before.model.from_hf == config.model.from_hf &&
                       before.data.train.tokenizer == config.data.train.tokenizer &&
                       before.data.eval.tokenizer == config.data.eval.tokenizer;
  return is_same ? run_of_checkpoint(source.checkpoint) : fs::path();
}

Fork plan_fork(const ForkSource& source, const RunConfig& config, const Prepared& prepared,
               const Facts& data) {
  Fork fork{.parts = {}, .lines = {}, .start = {}, .snapshot = source.snapshot};
  ForkLook look{.checkpoint = source.checkpoint,
                .saved = *source.snapshot,
                .before = source.config,
                .now = config,
                .data_before = source.data,
                .data_now = data,
                .prepared = prepared,
                .changes = {},
                .lines_before = source.lines};
  look.changes = defining_changes(look.before, config);
  check_rounding(look);
  check_model(source.checkpoint, tensors_of(*prepared.task.module), look.saved.model.tensors);
  fork.parts = parts_that_fit(look);
  const int64_t step = first_step(look);
  if (fork.parts.position) {
    fork.start = {value_of<int64_t>(look.saved.run, "epoch"),
                  value_of<int64_t>(look.saved.run, "consumed")};
  }
  check_epochs(look, why_data_begin_anew(look), step, fork.start);
  check_end(look, fork.parts, step, fork.start);
  fork.lines = fork_lines(look, fork.parts, step);
  return fork;
}

}  // namespace tanren
