#include "tanren/checkpoint/stored_state.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/checkpoint/stored_moment.h"
#include "tanren/checkpoint/values_json.h"
#include "tanren/config/run_config.h"
#include "tanren/formats/safetensors.h"
#include "tanren/ops/eight_bit.h"
#include "tanren/ops/memory_order.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>

namespace tanren {

using StateJson = nlohmann::ordered_json;

namespace {

constexpr const char* kSlices = "tanren.slices";
constexpr const char* kValues = "tanren.values";
constexpr std::string_view kCodes = "_codes", kScales = "_scales";

// The number of elements that one entry of the state covers.
int64_t unit_of(const std::string& key) { return key.ends_with(kScales) ? kPackedBlock : 1; }

int64_t units(int64_t elements, int64_t unit) { return (elements + unit - 1) / unit; }

[[noreturn]] void fail_lacks(const std::string& whole, const std::string& key) {
  throw CheckpointError("[checkpoint] the optimizer's state lacks " + key + " of " + whole +
                        ", or a part of it; it is of another model or optimizer");
}

StateSlice slice_of(const StateJson& json) {
  return {json.at("name").get<std::string>(),
          json.at("of").get<std::string>(),
          json.at("begin").get<int64_t>(),
          json.at("end").get<int64_t>(),
          json.at("shape").get<std::vector<int64_t>>(),
          json.at("strides").get<std::vector<int64_t>>()};
}

bool is_sound(const StateSlice& slice) {
  int64_t all = 1;
  for (const int64_t size : slice.sizes) {
    if (size < 1 || all > (int64_t{1} << 48) / size) return false;
    all *= size;
  }
  if (std::any_of(slice.strides.begin(), slice.strides.end(), [](int64_t s) { return s < 1; })) {
    return false;
  }
  const at::Tensor shape = at::empty_strided(slice.sizes, slice.strides, at::kMeta);
  return slice.sizes.size() == slice.strides.size() && slice.begin >= 0 &&
         slice.begin < slice.end && slice.end <= all && shape.is_non_overlapping_and_dense();
}

}  // namespace

void write_slices(const std::filesystem::path& path, const State& state,
                  const std::vector<StateSlice>& slices) {
  StateJson list = StateJson::array();
  for (const StateSlice& slice : slices) {
    list.push_back({{"name", slice.name},
                    {"of", slice.whole},
                    {"begin", slice.begin},
                    {"end", slice.end},
                    {"shape", slice.sizes},
                    {"strides", slice.strides}});
  }
  write_safetensors(
      path, state.tensors,
      {{kSlices, exact_json_text(list)}, {kValues, exact_json_text(values_to_json(state.values))}});
}

void read_slices(const std::filesystem::path& path, State& state, std::vector<StateSlice>& slices) {
  const auto fail = [&](const std::string& what) {
    throw CheckpointError("[checkpoint] " + path.string() + ": " + what +
                          "; use an older step folder, or a copy of this one");
  };
  try {
    const SafetensorsFile file = read_safetensors(path);
    const auto list = file.metadata.find(kSlices), values = file.metadata.find(kValues);
    if (list == file.metadata.end() || values == file.metadata.end()) {
      fail("it does not say which slices it holds");
    }
    const auto entries = parse_ordered_json(list->second);
    if (!entries.is_array()) fail("its list of slices is damaged");
    for (const auto& json : entries) {
      slices.push_back(slice_of(json));
      if (!is_sound(slices.back())) fail("its slice " + slices.back().name + " is no range");
    }
    for (const auto& [name, tensor] : file.tensors) {
      if (state.tensors.contains(name)) fail("it has " + name + ", which another part has, too");
      state.tensors.set(name, tensor);
    }
    const auto parsed = parse_ordered_json(values->second);
    if (parsed.is_discarded()) fail("its list of slices is damaged");
    state.values.merge(values_from_json(parsed));
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  } catch (const StateJson::exception&) {
    fail("its list of slices is damaged");
  } catch (const c10::Error&) {
    fail("the strides of a slice are impossible");
  }
}

StoredState::StoredState(const State& state, const std::vector<StateSlice>& slices)
    : state_(state) {
  for (const StateSlice& slice : slices) slices_[slice.whole].push_back(&slice);
  for (auto& [whole, list] : slices_) {
    std::sort(list.begin(), list.end(),
              [](const StateSlice* a, const StateSlice* b) { return a->begin < b->begin; });
  }
}

at::Tensor StoredState::range(const StateRange& wanted, const std::string& key) const {
  const at::NoGradGuard no_grad;
  const auto read = [&](const StateRange& part) {
    return slices_.empty() ? from_whole(part, key) : from_slices(part, key);
  };
  const int64_t unit = unit_of(key);
  if (unit == 1) return read(wanted);
  std::vector<int64_t> strides;  // the memory order in which the blocks were made
  if (const auto found = slices_.find(wanted.whole); found != slices_.end()) {
    strides = found->second.front()->strides;
  } else {
    const Value* order = value(wanted.whole, "order");
    const auto* text = order == nullptr ? nullptr : std::get_if<std::string>(order);
    strides = strides_of_order(wanted.sizes, text == nullptr ? "" : *text);
  }
  if (same_order(wanted.sizes, strides, wanted.strides)) return read(wanted);
  // In another order the elements of a block are apart, so each element gets its own scale.
  const int64_t all = c10::multiply_integers(wanted.sizes);
  const at::Tensor scales = read({wanted.whole, 0, all, wanted.sizes, strides});
  if (scales.numel() != units(all, unit)) fail_lacks(wanted.whole, key);
  const at::Tensor each = scales.repeat_interleave(unit).slice(0, 0, all);
  return in_memory(each.as_strided(wanted.sizes, strides), wanted.strides)
      .narrow(0, wanted.begin, wanted.end - wanted.begin);
}

at::Tensor StoredState::from_whole(const StateRange& wanted, const std::string& key) const {
  const auto* whole = state_.tensors.find(wanted.whole + "." + key);
  if (whole == nullptr) fail_lacks(wanted.whole, key);
  if (whole->dim() == 0) return *whole;
  const int64_t unit = unit_of(key);
  // Older files hold packed moments 1-dim, in the order of the shape.
  const bool is_flat = whole->dim() == 1 && whole->numel() == c10::multiply_integers(wanted.sizes);
  const bool shaped = unit == 1 && (is_flat || whole->sizes() == at::IntArrayRef(wanted.sizes));
  const at::Tensor flat =
      shaped ? in_memory(whole->reshape(wanted.sizes), wanted.strides) : whole->reshape({-1});
  const int64_t first = wanted.begin / unit, last = units(wanted.end, unit);
  if (last > flat.numel()) fail_lacks(wanted.whole, key);
  return flat.narrow(0, first, last - first);
}

at::Tensor StoredState::from_slices(const StateRange& wanted, const std::string& key) const {
  const auto found = slices_.find(wanted.whole);
  if (found == slices_.end()) fail_lacks(wanted.whole, key);
  const StateSlice& one = *found->second.front();
  if (one.sizes != wanted.sizes) {
    throw CheckpointError("[checkpoint] " + wanted.whole +
                          " has another shape in the optimizer's state; it is of another model");
  }
  if (!same_order(wanted.sizes, one.strides, wanted.strides)) {
    const int64_t all = c10::multiply_integers(wanted.sizes);
    at::Tensor flat = from_slices({wanted.whole, 0, all, one.sizes, one.strides}, key);
    if (flat.dim() == 0 || flat.numel() != all) return flat;
    return in_memory(flat.as_strided(one.sizes, one.strides), wanted.strides)
        .narrow(0, wanted.begin, wanted.end - wanted.begin);
  }
  const int64_t unit = unit_of(key);
  std::vector<at::Tensor> pieces;
  int64_t next = wanted.begin;
  for (const StateSlice* slice : found->second) {
    if (slice->end <= next || slice->begin >= wanted.end) continue;
    const auto* tensor = state_.tensors.find(slice->name + "." + key);
    if (tensor == nullptr || slice->begin > next) fail_lacks(wanted.whole, key);
    if (tensor->dim() == 0) return *tensor;
    const int64_t end = std::min(slice->end, wanted.end);
    const int64_t from = (next - slice->begin) / unit, to = units(end - slice->begin, unit);
    const bool whole_units = next % unit == 0 && slice->begin % unit == 0;
    if (tensor->dim() != 1 || to > tensor->numel() || !whole_units) fail_lacks(wanted.whole, key);
    pieces.push_back(tensor->narrow(0, from, to - from));
    next = end;
  }
  if (next < wanted.end) fail_lacks(wanted.whole, key);
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces);
}

bool StoredState::has(const std::string& whole, const std::string& key) const {
  std::string name = whole;
  if (!slices_.empty()) {
    const auto found = slices_.find(whole);
    if (found == slices_.end()) return false;
    name = found->second.front()->name;
  }
  name += "." + key;
  return state_.tensors.contains(name) || state_.values.count(name) > 0;
}

const Value* StoredState::value(const std::string& whole, const std::string& key) const {
  std::string name = whole;
  if (!slices_.empty()) {
    const auto found = slices_.find(whole);
    if (found == slices_.end()) return nullptr;
    name = found->second.front()->name;
  }
  const auto found = state_.values.find(name + "." + key);
  return found == state_.values.end() ? nullptr : &found->second;
}

at::Tensor moment_of(const StoredState& stored, const StateRange& wanted, const std::string& key) {
  const at::Tensor found = stored.range(wanted, key);
  if (!key.ends_with(kCodes)) {
    return found.scalar_type() == at::kBFloat16 ? found.to(at::kFloat) : found;
  }
  const std::string moment = key.substr(0, key.size() - kCodes.size());
  const at::Tensor scales = stored.range(wanted, moment + std::string(kScales));
  const bool each = scales.numel() == found.numel();
  if (found.scalar_type() != at::kByte ||
      (!each && scales.numel() != units(found.numel(), kPackedBlock))) {
    fail_lacks(wanted.whole, key);
  }
  return from_eight_bit(found, scales, moment == "exp_avg", each ? 1 : kPackedBlock);
}

State StoredState::joined() const {
  State joined;
  const auto join = [&](const std::string& whole, const std::string& key,
                        const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    if (key.ends_with(kScales)) return;
    const std::string plain =
        key.substr(0, key.size() - (key.ends_with(kCodes) ? kCodes.size() : 0));
    const StateRange all{whole, 0, c10::multiply_integers(sizes), sizes, strides};
    const at::Tensor tensor = moment_of(*this, all, key);
    joined.tensors.set(whole + "." + plain,
                       tensor.dim() == 0 ? tensor : tensor.as_strided(sizes, strides));
  };
  if (slices_.empty()) {
    for (const auto& [name, tensor] : state_.tensors) {
      const size_t dot = name.rfind('.');
      const auto sizes = tensor.sizes().vec();
      join(name.substr(0, dot), name.substr(dot + 1), sizes, plain_strides(sizes));
    }
    joined.values = state_.values;
  }
  for (const auto& [name, list] : slices_) {
    const StateSlice& first = *list.front();
    const std::string start = first.name + ".";
    for (const auto& [stored, tensor] : state_.tensors) {
      if (stored.starts_with(start)) {
        join(name, stored.substr(start.size()), first.sizes, first.strides);
      }
    }
    for (const auto& [stored, value] : state_.values) {
      if (stored.starts_with(start)) {
        joined.values[name + "." + stored.substr(start.size())] = value;
      }
    }
  }
  return joined;
}

}  // namespace tanren
