#include "tanren/checkpoint/checkpoint.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/manifest.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/checkpoint/values_json.h"
#include "tanren/checkpoint/weights_index.h"
#include "tanren/comm/exchange.h"
#include "tanren/formats/safetensors.h"

#include <charconv>
#include <functional>
#include <set>
#include <string_view>

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

constexpr const char* kModelParts = "model";
constexpr const char* kOptimizerParts = "optimizer";
constexpr const char* kAverageParts = "average";
constexpr int64_t kMostParts = 99'999;

std::string part_name(const std::string& kind, const FilePart& part) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", kind, part.part, part.parts);
}

std::vector<std::string> part_names(const std::string& kind, int64_t parts) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < parts; ++i) names.push_back(part_name(kind, {i, parts}));
  return names;
}

// The total number of parts, if the file `name` is a part of this kind; otherwise 0.
int64_t num_parts(const std::string& name, const std::string& kind) {
  constexpr std::string_view kEnd = ".safetensors", kOf = "-of-";
  const size_t of = name.rfind(kOf);
  if (!name.starts_with(kind + "-") || !name.ends_with(kEnd) || of == std::string::npos) return 0;
  FilePart part;
  const auto read = [&](size_t begin, size_t end, int64_t& number) {
    if (begin >= end) return false;
    const auto result = std::from_chars(name.data() + begin, name.data() + end, number);
    return result.ec == std::errc() && result.ptr == name.data() + end;
  };
  const bool is_read = read(kind.size() + 1, of, part.part) &&
                       read(of + kOf.size(), name.size() - kEnd.size(), part.parts);
  const bool is_part = is_read && part.part >= 0 && part.part < part.parts &&
                       part.parts <= kMostParts && part_name(kind, part) == name;
  return is_part ? part.parts : 0;
}

// The names of all parts of this kind, if the manifest's files `listed` have one of them; otherwise
// empty.
std::vector<std::string> parts_in(const std::vector<std::string>& listed, const std::string& kind) {
  for (const std::string& name : listed) {
    const int64_t parts = num_parts(name, kind);
    if (parts > 0) return part_names(kind, parts);
  }
  return {};
}

std::string index_of(const std::string& file) { return file + ".index.json"; }

bool has_averages(const Snapshot& snapshot) {
  return !snapshot.average.tensors.empty() || !snapshot.average.values.empty();
}

bool in_parts(const FilePart& file) { return file.parts > 1; }

bool writes_part(const FilePart& file) { return in_parts(file) && file.part >= 0; }

void write_parts(const fs::path& folder, const Snapshot& snapshot) {
  const auto& [model, optimizer, names] = snapshot.parts;
  if (writes_part(model)) {
    write_safetensors(folder / part_name(kModelParts, model), snapshot.model.tensors,
                      {{"format", "pt"}}, Narrow::widened);
    if (has_averages(snapshot)) {
      write_safetensors(folder / part_name(kAverageParts, model), snapshot.average.tensors,
                        {{"format", "pt"}});
    }
  }
  if (writes_part(optimizer)) {
    write_slices(folder / part_name(kOptimizerParts, optimizer), snapshot.optimizer,
                 snapshot.slices);
  }
}

// A whole file of weights, or the index of its parts.
void write_weights_of(const char* kind, const fs::path& file, const TensorMap& tensors,
                      const SnapshotParts& parts, Narrow narrow) {
  if (in_parts(parts.model)) {
    write_index(file.parent_path() / index_of(file.filename().string()),
                part_names(kind, parts.model.parts), parts.names);
  } else {
    write_safetensors(file, tensors, {{"format", "pt"}}, narrow);
  }
}

// Writes all files except the parts, which exist already.
void write_files(const fs::path& folder, const Snapshot& snapshot) {
  const bool whole = !in_parts(snapshot.parts.optimizer), averages = has_averages(snapshot);
  write_weights_of(kModelParts, folder / kModel, snapshot.model.tensors, snapshot.parts,
                   Narrow::widened);
  if (whole) write_safetensors(folder / kOptimizer, snapshot.optimizer.tensors);
  if (averages) {
    write_weights_of(kAverageParts, folder / kAverage, snapshot.average.tensors, snapshot.parts,
                     Narrow::as_it_is);
  }
  write_safetensors(folder / kRandom, snapshot.run.tensors);
  Json state{{"run", values_to_json(snapshot.run.values)},
             {"optimizer",
              values_to_json(whole ? snapshot.optimizer.values : std::map<std::string, Value>())},
             {"model", values_to_json(snapshot.model.values)}};
  if (averages) state["average"] = values_to_json(snapshot.average.values);
  write_file(folder / kState, exact_json_text(state, 1) + "\n");
  write_file(folder / kConfig, snapshot.config_toml);
  write_file(folder / kPlan, snapshot.plan_text);
  if (!snapshot.origin.empty()) write_file(folder / kOrigin, snapshot.origin);
  write_manifest(folder);
}

// A safetensors file, or those of an index.
TensorMap read_tensors(const fs::path& path) {
  try {
    if (path.extension() == ".json") return read_index(path).content.tensors;
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
    throw DiskError("[checkpoint] cannot write " + target.string() + " (" + why +
                    "); check its folder's rights and free space");
  };
  std::error_code ignored;
  try {
    fs::create_directories(folder);
    remove_unfinished(folder);
    temporary = make_step_folder(target);
    write_files(temporary, snapshot);
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

// Calls `work` on each rank. If it throws on one rank, all ranks throw a DiskError.
void do_together(Communicator& ranks, const fs::path& target, const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const fs::filesystem_error& error) {
    failure = error.code().message() + "; check the folder's rights and free space there";
  } catch (const std::exception& error) {
    failure = first_line(error.what());
  }
  const auto failures = gather_texts(ranks, failure);
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    settle(ranks);
    throw DiskError(fmt::format("[checkpoint] rank {} cannot write its part of {}: {}", rank,
                                target.string(), failures[rank]));
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
    do_together(ranks, target, [&] { write_parts(temporary, snapshot); });
    do_together(ranks, target, [&] {
      if (!is_first) return;
      write_files(temporary, snapshot);
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
  const bool can_be_read = is_complete(step_folder);
  const auto listed = can_be_read ? listed_files(step_folder) : std::vector<std::string>();
  std::vector<std::string> shared;
  const auto find_parts = [&](const char* kind) {
    auto names = parts_in(listed, kind);
    shared.insert(shared.end(), names.begin(), names.end());
    return names;
  };
  const auto optimizer = find_parts(kOptimizerParts), model = find_parts(kModelParts),
             average = find_parts(kAverageParts);
  const fs::path model_file = model.empty() ? kModel : index_of(kModel);
  const fs::path average_file = average.empty() ? kAverage : index_of(kAverage);
  std::vector<std::string> required = {model_file.string(), kRandom, kState, kConfig, kPlan};
  if (optimizer.empty()) required.emplace_back(kOptimizer);
  if (!average.empty()) required.push_back(average_file.string());
  std::set<std::string> others;  // parts that another rank verifies
  for (size_t i = 0; i < shared.size(); ++i) {
    required.push_back(shared[i]);
    if (static_cast<int64_t>(i) % ranks != rank) others.insert(shared[i]);
  }
  verify_manifest(step_folder, required,
                  [&](const std::string& name) { return others.count(name) > 0; });
  const auto state = parse_ordered_json(read_file(step_folder / kState));
  const bool averages = fs::exists(step_folder / average_file);
  Snapshot snapshot{
      .model = read_part(step_folder / model_file, state, "model"),
      .optimizer = {},
      .average = averages ? read_part(step_folder / average_file, state, "average") : State{},
      .run = read_part(step_folder / kRandom, state, "run"),
      .config_toml = read_file(step_folder / kConfig),
      .plan_text = read_file(step_folder / kPlan),
      .origin = origin_of(step_folder)};
  if (optimizer.empty()) {
    snapshot.optimizer = read_part(step_folder / kOptimizer, state, "optimizer");
  }
  for (const std::string& name : optimizer) {
    read_slices(step_folder / name, snapshot.optimizer, snapshot.slices);
  }
  return snapshot;
}

}  // namespace tanren
