#include "tanren/train/sharded_state.h"

#include "tanren/base/error.h"
#include "tanren/checkpoint/stored_moment.h"
#include "tanren/ops/eight_bit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

// Splits "h.0.weight@4096.exp_avg" into "h.0.weight@4096" and "exp_avg".
std::pair<std::string, std::string> split_state_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// The ranges of the updated parameters, by their names in the optimizer's state.
std::unordered_map<std::string, StateRange> ranges_of(const Objective& objective,
                                                      const std::string& start) {
  std::unordered_map<std::string, StateRange> ranges;
  for (const NamedParameter& parameter : objective.updated) {
    const at::Tensor& whole = parameter.rule_tensor();
    ranges[parameter.name] = {start + parameter.rule_name(), parameter.begin,
                              parameter.begin + parameter.tensor.numel(), whole.sizes().vec(),
                              whole.strides().vec()};
  }
  return ranges;
}

// `own` in the shape of a range: 1-dim in memory's order, or 0-dim.
at::Tensor flat_view(const at::Tensor& own) {
  return own.dim() == 0 ? own : own.as_strided({own.numel()}, {1});
}

}  // namespace

std::vector<StateSlice> slices_in(const Objective& objective, const std::string& start) {
  std::vector<StateSlice> slices;
  for (const NamedParameter& parameter : objective.updated) {
    slices.push_back({start + parameter.name, start + parameter.rule_name(), parameter.begin,
                      parameter.begin + parameter.tensor.numel(),
                      parameter.rule_tensor().sizes().vec(),
                      parameter.rule_tensor().strides().vec()});
  }
  return slices;
}

namespace {

// Those entries of `state` whose parameter or slice is in `names`, with `start` before each.
State entries_of(const State& state, const std::set<std::string>& names, const std::string& start) {
  const auto takes = [&](const std::string& name) {
    return names.count(split_state_name(name).first) > 0;
  };
  State entries;
  for (const auto& [name, tensor] : state.tensors) {
    if (takes(name)) entries.tensors.set(start + name, tensor);
  }
  for (const auto& [name, value] : state.values) {
    if (takes(name)) entries.values[start + name] = value;
  }
  return entries;
}

}  // namespace

SlicedState state_to_write(const Objective& objective, const std::string& start) {
  const auto slices = slices_in(objective, start);
  SlicedState own;
  std::set<std::string> names;
  for (size_t i = 0; i < slices.size(); ++i) {
    const NamedParameter& parameter = objective.updated[i];
    if (objective.stage && !objective.stage->owns(parameter.rule_name())) continue;
    names.insert(parameter.name);
    if (objective.shards) own.slices.push_back(slices[i]);
  }
  own.state = entries_of(objective.optimizer->state(), names, start);
  return own;
}

State state_of_updated(const Objective& objective, const State& whole) {
  std::set<std::string> names;
  for (const NamedParameter& parameter : objective.updated) names.insert(parameter.name);
  return entries_of(whole, names, "");
}

namespace {

enum class Wanted { all, what_is_there, whole_parameters };

[[noreturn]] void fail_other(const std::string& whole, const std::string& key) {
  throw CheckpointError("[checkpoint] " + key + " of " + whole +
                        " is stored in another shape or dtype; it is of another optimizer");
}

constexpr std::string_view kCodes = "_codes", kScales = "_scales";

// "exp_avg" of "exp_avg_codes" and "exp_avg_scales"; empty for any other key.
std::string packed_moment(const std::string& key) {
  for (const std::string_view part : {kCodes, kScales}) {
    if (key.ends_with(part)) return key.substr(0, key.size() - part.size());
  }
  return "";
}

// `key` names the codes or scales of a packed moment. Returns that moment in fp32 if it must be
// packed again, because its blocks have another memory order or it is stored unpacked. Otherwise
// undefined.
at::Tensor to_pack_anew(const StoredState& stored, const StateRange& range,
                        const std::string& key) {
  const std::string moment = packed_moment(key), codes = moment + std::string(kCodes);
  if (moment.empty()) return {};
  if (stored.has(range.whole, codes)) {
    const int64_t elements = range.end - range.begin;  // one scale per element if orders differ
    const at::Tensor scales = stored.range(range, moment + std::string(kScales));
    const bool is_apart = elements > 1 && scales.numel() == elements;
    return is_apart ? moment_of(stored, range, codes) : at::Tensor();
  }
  const bool is_plain = stored.has(range.whole, moment);
  return is_plain ? stored.range(range, moment).to(at::kFloat) : at::Tensor();
}

// Whether `key` is a plain moment of which the codes are stored.
bool is_to_unpack(const StoredState& stored, const std::string& whole, const std::string& key) {
  return !stored.has(whole, key) && stored.has(whole, key + std::string(kCodes));
}

// That moment in fp32, 1-dim in the order of memory here.
at::Tensor unpacked(const StoredState& stored, const StateRange& range, const std::string& key) {
  StateRange blocks = range;  // the whole blocks that cover the range
  blocks.begin -= blocks.begin % kPackedBlock;
  return moment_of(stored, blocks, key + std::string(kCodes))
      .narrow(0, range.begin - blocks.begin, range.end - range.begin);
}

bool is_stored(const StoredState& stored, const std::string& whole, const std::string& key) {
  const std::string moment = packed_moment(key);
  return stored.has(whole, key) || (!moment.empty() && stored.has(whole, moment)) ||
         is_to_unpack(stored, whole, key);
}

// Those of `ranges` for which `own` has a tensor that is not stored.
std::set<std::string> incomplete(const State& own,
                                 const std::unordered_map<std::string, StateRange>& ranges,
                                 const StoredState& stored) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : own.tensors) {
    const auto [of, key] = split_state_name(name);
    const std::string& whole = ranges.at(of).whole;
    if (key != kMasterWeight && !is_stored(stored, whole, key)) names.insert(whole);
  }
  return names;
}

// SGD's flag: the parameter has a momentum buffer. An optimizer without dampening stores the buffer
// but not the flag.
constexpr const char* kStarted = "started";

// Returns the parameters that Wanted::whole_parameters leaves as they are.
std::set<std::string> load_state(Objective& objective, const std::string& start,
                                 const StoredState& stored, Wanted wanted) {
  const at::NoGradGuard no_grad;
  const auto ranges = ranges_of(objective, start);
  State own = objective.optimizer->state();
  std::set<std::string> left;
  if (wanted == Wanted::whole_parameters) left = incomplete(own, ranges, stored);
  const auto skips = [&](const StateRange& range, const std::string& key) {
    return left.count(range.whole) > 0 ||
           (wanted != Wanted::all && !is_stored(stored, range.whole, key));
  };
  for (auto& [name, value] : own.values) {
    const auto [of, key] = split_state_name(name);
    const StateRange& range = ranges.at(of);
    if (key == "order") continue;
    const bool is_taken = wanted == Wanted::whole_parameters && left.count(range.whole) == 0;
    if (is_taken && key == kStarted && !stored.has(range.whole, key)) value = true;
    if (skips(range, key)) continue;  // the memory order stays this rank's own
    const Value* given = stored.value(range.whole, key);
    if (given == nullptr) {
      throw CheckpointError("[checkpoint] the optimizer's state lacks " + key + " of " +
                            range.whole + "; it is of another optimizer");
    }
    value = *given;
  }
  State loaded{{}, own.values};
  for (const bool copies : {false, true}) {  // checks everything before writing anything
    for (const auto& [name, tensor] : own.tensors) {
      const auto [of, key] = split_state_name(name);
      const StateRange& range = ranges.at(of);
      const bool is_left = left.count(range.whole) > 0;
      const at::Tensor again = is_left ? at::Tensor() : to_pack_anew(stored, range, key);
      if (again.defined()) {
        if (!key.ends_with(kCodes)) continue;
        if (again.numel() != tensor.numel()) fail_other(range.whole, key);
        loaded.tensors.set(of + "." + packed_moment(key),
                           again.to(tensor.device()).as_strided(tensor.sizes(), tensor.strides()));
        continue;
      }
      if (copies) loaded.tensors.set(name, tensor);
      if (skips(range, key)) continue;
      const bool unpacks =
          wanted == Wanted::whole_parameters && is_to_unpack(stored, range.whole, key);
      const at::Tensor given = unpacks ? unpacked(stored, range, key) : stored.range(range, key);
      const at::Tensor into = flat_view(tensor);
      // Older files have moments in fp32 that are kept in bf16 now.
      const bool is_rounded =
          given.scalar_type() == at::kFloat && into.scalar_type() == at::kBFloat16;
      const bool fits = is_rounded || given.scalar_type() == into.scalar_type();
      if (given.sizes() != into.sizes() || (wanted == Wanted::all && !fits)) {
        fail_other(range.whole, key);
      }
      if (copies) into.copy_(given);
    }
  }
  // The copied tensors are in place. load() takes the plain values and packs the moments to be
  // packed again.
  objective.optimizer->load(loaded);
  return left;
}

}  // namespace

void load_ranges(Objective& objective, const std::string& start, const StoredState& stored) {
  load_state(objective, start, stored, Wanted::all);
}

void load_known(Objective& objective, const std::string& start, const StoredState& stored) {
  load_state(objective, start, stored, Wanted::what_is_there);
}

namespace {

// Loads `given` parameter by parameter, without what the optimizer does not keep. Moments that are
// packed in one of the two and plain in the other are converted. Returns the parameters that stay
// unchanged.
std::set<std::string> load_whole(Objective& objective, const State& given) {
  const State own = objective.optimizer->state();
  const auto ranges = ranges_of(objective, "");
  const std::vector<StateSlice> none;
  const StoredState stored(given, none);
  std::set<std::string> left = incomplete(own, ranges, stored);
  State state;
  std::set<std::string> taken;  // parameters
  for (const auto& [name, tensor] : own.tensors) {
    const auto [of, key] = split_state_name(name);
    const at::Tensor* const same = given.tensors.find(name);
    const bool is_left = key == kMasterWeight || left.count(of) > 0;
    if (!is_left) taken.insert(of);
    if (is_left) {
      state.tensors.set(name, tensor);
    } else if (same != nullptr) {
      state.tensors.set(name, same->to(tensor.scalar_type()));
    } else if (is_to_unpack(stored, of, key)) {
      state.tensors.set(name, unpacked(stored, ranges.at(of), key)
                                  .as_strided(tensor.sizes(), tensor.strides())
                                  .to(tensor.scalar_type()));
    } else {
      const std::string plain = of + "." + packed_moment(key);
      state.tensors.set(plain, given.tensors.at(plain).to(at::kFloat));
    }
  }
  for (const auto& [name, value] : given.values) {
    const auto [of, key] = split_state_name(name);
    const bool is_unpacked = key == "order" && !own.tensors.contains(of + ".exp_avg_codes");
    if (taken.count(of) > 0 && !is_unpacked) state.values[name] = value;
  }
  for (const auto& [name, value] : own.values) {
    const auto [of, key] = split_state_name(name);
    const bool is_taken = taken.count(of) > 0;
    // The order in memory belongs to the codes that were taken.
    if (key == "order" && is_taken) continue;
    state.values.try_emplace(name, key == kStarted && is_taken ? Value(true) : value);
  }
  objective.optimizer->load(state);
  return left;
}

// The parameters, with `path`, that have some state in `given`.
std::set<std::string> with_state(const std::string& path, const State& given,
                                 const std::vector<StateSlice>& slices) {
  std::set<std::string> names;
  for (const StateSlice& slice : slices) names.insert(slice.whole);
  if (!slices.empty()) return names;
  for (const auto& [name, tensor] : given.tensors) {
    const auto [of, key] = split_state_name(name);
    if (key != kMasterWeight && of.starts_with(path + ".")) names.insert(of);
  }
  return names;
}

}  // namespace

std::vector<std::string> load_fitting(Objective& objective, const std::string& path,
                                      const State& given, const std::vector<StateSlice>& slices) {
  const std::string start = path + ".";
  std::set<std::string> left;
  if (!slices.empty() || objective.shards) {
    left = load_state(objective, start, StoredState(given, slices), Wanted::whole_parameters);
  } else {
    for (const auto& name : load_whole(objective, part_below(given, path)))
      left.insert(start + name);
  }
  const auto known = with_state(path, given, slices);
  std::vector<std::string> names;
  for (const std::string& name : left) {
    if (known.count(name) > 0) names.push_back(name);
  }
  return names;
}

void take_over_state(Objective& objective, const SlicedState& before, Communicator& ranks) {
  const auto overlaps = [&](const StateSlice& slice) {
    return std::any_of(objective.updated.begin(), objective.updated.end(),
                       [&](const NamedParameter& own) {
                         return own.rule_name() == slice.whole && own.begin < slice.end &&
                                slice.begin < own.begin + own.tensor.numel();
                       });
  };
  const SlicedState given = exchange_slices(ranks, before, overlaps);
  load_known(objective, "", StoredState(given.state, given.slices));
}

}  // namespace tanren
