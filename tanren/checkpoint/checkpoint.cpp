#include "tanren/checkpoint/checkpoint.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/manifest.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/checkpoint/values_json.h"
#include "tanren/comm/exchange.h"
#include "tanren/formats/safetensors.h"

#include <algorithm>
#include <charconv>
#include <functional>

namespace tanren {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kBest = "best";  // link to a step folder
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kAverage = "average.safetensors";
constexpr const char* kRandom = "random.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kConfig = "config.toml";
constexpr const char* kPlan = "plan.txt";
constexpr const char* kOrigin = "origin.json";

// The file of rank `rank` if `ranks` ranks share the optimizer's state.
std::string slices_name(int64_t rank, int64_t ranks) {
  return fmt::format("optimizer-{:05}-of-{:05}.safetensors", rank, ranks);
}

// The number of files with slices, by the name of the first; 0: none.
int64_t num_slice_files(const fs::path& folder) {
  const std::string start = "optimizer-00000-of-", end = ".safetensors";
  std::error_code error;
  for (fs::directory_iterator at(folder, error), last_one; !error && at != last_one;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    int64_t ranks = 0;
    if (!name.starts_with(start) || !name.ends_with(end)) continue;
    const char* last = name.data() + name.size() - end.size();
    const auto result = std::from_chars(name.data() + start.size(), last, ranks);
    const bool read = result.ec == std::errc() && result.ptr == last;
    if (read && ranks > 0 && slices_name(0, ranks) == name) return ranks;
  }
  if (!error) return 0;
  throw CheckpointError(fmt::format(
      "[checkpoint] {} cannot be listed ({}); use an older step folder, or a copy of this one",
      folder.string(), error.message()));
}

// Writes all files except slices of the optimizer's state.
void write_files(const fs::path& folder, const Snapshot& snapshot, bool shared) {
  write_safetensors(folder / kModel, snapshot.model.tensors, {{"format", "pt"}}, Narrow::widened);
  if (!shared) write_safetensors(folder / kOptimizer, snapshot.optimizer.tensors);
  const bool averages = !snapshot.average.tensors.empty();
  if (averages) write_safetensors(folder / kAverage, snapshot.average.tensors, {{"format", "pt"}});
  write_safetensors(folder / kRandom, snapshot.run.tensors);
  Json state{{"run", values_to_json(snapshot.run.values)},
             {"optimizer",
              values_to_json(shared ? std::map<std::string, Value>() : snapshot.optimizer.values)},
             {"model", values_to_json(snapshot.model.values)}};
  if (averages) state["average"] = values_to_json(snapshot.average.values);
  write_file(folder / kState, exact_json_text(state, 1) + "\n");
  write_file(folder / kConfig, snapshot.config_toml);
  write_file(folder / kPlan, snapshot.plan_text);
  if (!snapshot.origin.empty()) write_file(folder / kOrigin, snapshot.origin);
  write_manifest(folder);
}

TensorMap read_tensors(const fs::path& path) {
  try {
    return read_safetensors(path).tensors;
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  }
}

std::map<std::string, Value> values_of_part(const fs::path& folder, const Json& state,
                                            const char* part) {
  if (!state.is_object() || !state.contains(part) || !state[part].is_object()) {
    throw CheckpointError("[checkpoint] " + (folder / kState).string() + " lacks the part " + part +
                          "; use another step folder");
  }
  return values_from_json(state[part]);
}

State read_part(const fs::path& tensors, const Json& state, const char* part) {
  return {read_tensors(tensors), values_of_part(tensors.parent_path(), state, part)};
}

}  // namespace

fs::path write_checkpoint(const fs::path& folder, int64_t step, const Snapshot& snapshot,
                          int64_t keep, const std::vector<int64_t>& best) {
  fs::path target = folder / fmt::format("step-{}", step);
  fs::path temporary;
  const auto fail = [&](const std::string& why) {
    throw RunError("[checkpoint] cannot write " + target.string() + " (" + why +
                   "); check its folder's rights and free space");
  };
  std::error_code ignored;
  try {
    fs::create_directories(folder);
    remove_unfinished(folder);
    temporary = make_step_folder(target);
    write_files(temporary, snapshot, /*shared=*/false);
    put_in_place(temporary, target);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(temporary, ignored);
    fail(failure.code().message());
  } catch (const Json::exception& failure) {
    fs::remove_all(temporary, ignored);
    fail(failure.what());
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
  link_best(folder / kBest, best);
  remove_old(folder, keep, target, best);
  return target;
}

namespace {

// Calls `work` on each rank. If it throws on one rank, all ranks throw a RunError.
void do_together(Communicator& ranks, const fs::path& target, const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = first_line(error.what());
  }
  const auto failures = gather_texts(ranks, failure);
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    settle(ranks);
    throw RunError(
        fmt::format("[checkpoint] rank {} cannot write its part of {} ({}); check the folder's "
                    "rights and free space there",
                    rank, target.string(), failures[rank]));
  }
}

}  // namespace

fs::path write_shared_checkpoint(const fs::path& folder, int64_t step, const Snapshot& snapshot,
                                 int64_t keep, const std::vector<int64_t>& best,
                                 Communicator& ranks) {
  fs::path target = folder / fmt::format("step-{}", step);
  fs::path temporary;
  const bool is_first = ranks.rank() == 0;
  try {
    do_together(ranks, target, [&] {
      if (!is_first) return;
      fs::create_directories(folder);
      remove_unfinished(folder);
      temporary = make_step_folder(target);
    });
    temporary = folder / gather_texts(ranks, temporary.filename().string()).front();
    do_together(ranks, target, [&] {
      write_slices(temporary / slices_name(ranks.rank(), ranks.world_size()), snapshot.optimizer,
                   snapshot.slices);
    });
    do_together(ranks, target, [&] {
      if (!is_first) return;
      write_files(temporary, snapshot, /*shared=*/true);
      put_in_place(temporary, target);
    });
  } catch (...) {
    std::error_code ignored;
    if (is_first) fs::remove_all(temporary, ignored);
    throw;
  }
  if (!is_first) return target;
  link_best(folder / kBest, best);
  remove_old(folder, keep, target, best);
  return target;
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  const auto all = complete_steps(folder);
  if (all.empty()) return std::nullopt;
  return all.back();
}

std::optional<fs::path> checkpoint_of_step(const fs::path& folder, int64_t step) {
  fs::path place = complete_step(folder, step);
  if (place.empty()) return std::nullopt;
  return place;
}

std::optional<fs::path> best_checkpoint(const fs::path& folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(folder / kBest, error);
  return error ? std::nullopt : checkpoint_of_step(folder, step_of(target));
}

std::string origin_of(const fs::path& step_folder) {
  const fs::path path = step_folder / kOrigin;
  return fs::exists(path) ? read_file(path) : "";
}

std::map<std::string, Value> run_values_of(const fs::path& step_folder) {
  const auto state = parse_ordered_json(read_file(step_folder / kState));
  return values_of_part(step_folder, state, "run");
}

Snapshot read_checkpoint(const fs::path& step_folder, int64_t rank, int64_t ranks) {
  const int64_t files = is_complete(step_folder) ? num_slice_files(step_folder) : 0;
  std::vector<std::string> required = {kModel, kRandom, kState, kConfig, kPlan};
  std::vector<std::string> others;  // files with slices that another rank verifies
  if (files == 0) required.emplace_back(kOptimizer);
  for (int64_t i = 0; i < files; ++i) {
    required.push_back(slices_name(i, files));
    if (i % ranks != rank) others.push_back(required.back());
  }
  verify_manifest(step_folder, required, [&](const std::string& name) {
    return std::find(others.begin(), others.end(), name) != others.end();
  });
  const auto state = parse_ordered_json(read_file(step_folder / kState));
  const bool averages = fs::exists(step_folder / kAverage);
  Snapshot snapshot{
      .model = read_part(step_folder / kModel, state, "model"),
      .optimizer = {},
      .average = averages ? read_part(step_folder / kAverage, state, "average") : State{},
      .run = read_part(step_folder / kRandom, state, "run"),
      .config_toml = read_file(step_folder / kConfig),
      .plan_text = read_file(step_folder / kPlan),
      .origin = origin_of(step_folder)};
  if (files == 0) snapshot.optimizer = read_part(step_folder / kOptimizer, state, "optimizer");
  for (int64_t i = 0; i < files; ++i) {
    read_slices(step_folder / slices_name(i, files), snapshot.optimizer, snapshot.slices);
  }
  return snapshot;
}

}  // namespace tanren
