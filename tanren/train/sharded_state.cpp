#include "tanren/train/sharded_state.h"

#include "tanren/base/error.h"
#include "tanren/checkpoint/stored_moment.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
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

enum class Wanted { all, what_is_there };

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

// The moment whose codes or scales `key` names, in fp32, if it must be packed again: its blocks are
// of another order of memory, or it is stored unpacked. Otherwise undefined.
at::Tensor to_pack_anew(const StoredState& stored, const StateRange& range,
                        const std::string& key) {
  const std::string moment = packed_moment(key), codes = moment + std::string(kCodes);
  if (moment.empty()) return {};
  if (stored.has(range.whole, codes)) {
    const int64_t elements = range.end - range.begin;  // one scale each if orders differ
    const at::Tensor scales = stored.range(range, moment + std::string(kScales));
    const bool is_apart = elements > 1 && scales.numel() == elements;
    return is_apart ? moment_of(stored, range, codes) : at::Tensor();
  }
  const bool is_plain = stored.has(range.whole, moment);
  return is_plain ? stored.range(range, moment).to(at::kFloat) : at::Tensor();
}

void load_state(Objective& objective, const std::string& start, const StoredState& stored,
                Wanted wanted) {
  const auto skips = [&](const StateRange& range, const std::string& key) {
    return wanted == Wanted::what_is_there && !stored.has(range.whole, key);
  };
  const at::NoGradGuard no_grad;
  const auto ranges = ranges_of(objective, start);
  State own = objective.optimizer->state();
  for (auto& [name, value] : own.values) {
    const auto [of, key] = split_state_name(name);
    const StateRange& range = ranges.at(of);
    if (key == "order" || skips(range, key)) continue;  // the order is that of memory here
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
      if (const at::Tensor again = to_pack_anew(stored, range, key); again.defined()) {
        if (!key.ends_with(kCodes)) continue;
        if (again.numel() != tensor.numel()) fail_other(range.whole, key);
        loaded.tensors.set(of + "." + packed_moment(key),
                           again.to(tensor.device()).as_strided(tensor.sizes(), tensor.strides()));
        continue;
      }
      if (copies) loaded.tensors.set(name, tensor);
      if (skips(range, key)) continue;
      const at::Tensor given = stored.range(range, key);
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
}

}  // namespace

void load_ranges(Objective& objective, const std::string& start, const StoredState& stored) {
  load_state(objective, start, stored, Wanted::all);
}

void load_known(Objective& objective, const StoredState& stored) {
  load_state(objective, "", stored, Wanted::what_is_there);
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
  load_known(objective, StoredState(given.state, given.slices));
}

}  // namespace tanren
