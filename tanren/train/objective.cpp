#include "tanren/train/objective.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/optimizer/master_weights.h"
#include "tanren/train/sharded_state.h"

#include <ATen/core/Tensor.h>

#include <utility>

namespace tanren {

namespace {

// Replaces the parameters in `updated` by this rank's slices of them.
void share_update(Objective& objective) {
  const std::vector<NamedParameter> whole = std::move(objective.updated);
  objective.shards = std::make_unique<ShardedParameters>(objective.gradients);
  objective.updated.clear();
  size_t next = 0;
  for (const Slice& slice : objective.gradients.slices()) {
    const NamedParameter& parameter = whole[slice.parameter];
    objective.updated.push_back({.name = fmt::format("{}@{}", parameter.name, slice.begin),
                                 .tensor = objective.shards->owned()[next++],
                                 .whole_name = parameter.name,
                                 .whole = parameter.tensor,
                                 .begin = slice.begin,
                                 .decays = parameter.decays});
  }
}

// Objective::spoken_for.
std::vector<FlatRange> spoken_ranges(const Objective& objective) {
  const Gradients& gradients = objective.gradients;
  const std::vector<size_t>& places = objective.places;
  std::vector<FlatRange> ranges(objective.all.size());
  const auto owns = [&](size_t place) {
    return objective.stage == nullptr || objective.stage->owns(objective.all[place].name);
  };
  const Sharding& sharding = gradients.sharding();
  if (sharding.on()) {
    for (const Slice& slice : gradients.slices()) {
      if (!owns(places[slice.parameter])) continue;
      ranges[places[slice.parameter]] = {slice.bucket, slice.offset, slice.end - slice.begin};
    }
  } else if (sharding.rank == 0) {
    for (size_t i = 0; i < places.size(); ++i) {
      if (!owns(places[i])) continue;
      const Gradients::Place place = gradients.place(i);
      ranges[places[i]] = {place.buffer, place.offset, place.numel};
    }
  }
  return ranges;
}

}  // namespace

void Objective::choose_parameters(Communicator* ranks) {
  std::vector<NamedParameter> chosen;
  std::vector<at::Tensor> tensors;
  std::vector<size_t> chosen_places;
  Sharding own_sharding = sharding;
  bool any = false;
  for (size_t i = 0; i < all.size(); ++i) {
    const NamedParameter& parameter = all[i];
    if (!parameter.tensor.requires_grad()) {
      at::Tensor(parameter.tensor).mutable_grad().reset();
      continue;
    }
    any = true;
    if (stage && !stage->holds(parameter.name)) continue;
    if (stage && stage->is_tied(parameter.name)) {
      own_sharding.layout.alone.push_back(chosen.size());
    }
    if (master_weights) parameter.tensor.set_grad_dtype(at::kFloat);
    chosen.push_back(parameter);
    tensors.push_back(parameter.tensor);
    chosen_places.push_back(i);
  }
  if (!trains) {
    parameters = std::move(chosen);
    return;
  }
  if (!any) {
    throw ConfigError("[train] objective " + spec.name + " has no parameter to train (patterns " +
                      join(spec.parameters) + "); unfreeze some or fix the patterns");
  }
  SlicedState kept;
  if (shards) {
    shards->wait();
    kept = {optimizer->state(), slices_in(*this, "")};
  }
  shards.reset();
  gradients = Gradients(tensors, own_sharding);
  places = std::move(chosen_places);
  spoken_for = spoken_ranges(*this);
  updated = chosen;
  if (sharding.on()) share_update(*this);
  const MemoryScope memory(MemoryKind::optimizer);
  auto made = master_weights ? make_master_weights(plan.optimizer, updated, all)
                             : make_optimizer(plan.optimizer, updated, all);
  if (optimizer && !sharding.on()) {
    State state = made->state();
    const State before = optimizer->state();
    const TensorMap own = state.tensors;
    for (const auto& [name, tensor] : own) {
      if (const auto* kept = before.tensors.find(name)) state.tensors.set(name, *kept);
    }
    for (auto& [name, value] : state.values) {
      const auto kept = before.values.find(name);
      if (kept != before.values.end()) value = kept->second;
    }
    made->load(state);
  }
  const auto before = std::exchange(optimizer, std::move(made));  // `kept` is this one's state
  parameters = std::move(chosen);
  if (before && sharding.on() && ranks != nullptr) take_over_state(*this, kept, *ranks);
}

double Objective::weight_of(const std::string& term) const {
  if (spec.terms.empty()) {
    const auto own = plan.weights.find(term);
    return own == plan.weights.end() ? 1.0 : own->second;
  }
  double weight = 0;
  for (const auto& listed : spec.terms) weight += listed.name == term ? listed.weight : 0;
  return weight;
}

const std::vector<uint8_t>* Objective::active(std::vector<uint8_t>& kept) const {
  const auto* flags = gradients.active();
  if (flags == nullptr || !shards) return flags;
  kept.clear();
  for (const Slice& slice : gradients.slices()) kept.push_back((*flags)[slice.parameter]);
  return &kept;
}

}  // namespace tanren
