#include "tanren/interop/torch_numbers.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/interop/transfer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tanren {

namespace {

using Parameters = std::vector<NamedParameter>;
using Numbers = std::map<int64_t, NamedParameter>;

// The longest start, up to a dot, that all names share.
std::string shared_prefix(const Parameters& own) {
  if (own.empty()) return "";
  std::string prefix = own.front().name;
  for (const auto& parameter : own) {
    const auto [end, other] =
        std::mismatch(prefix.begin(), prefix.end(), parameter.name.begin(), parameter.name.end());
    prefix.erase(end, prefix.end());
  }
  return prefix.substr(0, prefix.rfind('.') + 1);
}

// `own` by the names that the file uses: the full names, or the names without some of the shared
// prefix, whichever finds most names in the file.
std::map<std::string, NamedParameter> by_file_name(const Parameters& own, const TensorMap& file) {
  const std::string shared = shared_prefix(own);
  std::vector<size_t> lengths = {0};  // of the parts that a file may leave out
  for (size_t i = 0; i < shared.size(); ++i) {
    if (shared[i] == '.') lengths.push_back(i + 1);
  }
  std::map<std::string, NamedParameter> best;
  int64_t most = -1;
  for (const size_t length : lengths) {
    std::map<std::string, NamedParameter> named;
    int64_t hits = 0;
    for (const auto& parameter : own) {
      const std::string name = parameter.name.substr(length);
      hits += file.find(name) != nullptr ? 1 : 0;
      named.emplace(name, parameter);
    }
    if (hits > most) {
      most = hits;
      best = std::move(named);
    }
  }
  return best;
}

// `own` in the order of the file's model, if the file has them all.
Parameters in_file_order(const Parameters& own, const TensorMap& model) {
  const auto named = by_file_name(own, model);
  Parameters ordered;
  for (const auto& entry : model) {
    const auto found = named.find(entry.first);
    if (found != named.end()) ordered.push_back(found->second);
  }
  return ordered.size() == own.size() ? ordered : own;
}

// As renamed(), without the error for a rename that fits no name: a file may hold the optimizer of
// one of several networks.
TensorMap renamed_where_it_fits(TensorMap tensors, const ModelOptions& model) {
  for (const auto& rename : rename_pairs(model)) {
    const bool is_used = std::any_of(tensors.begin(), tensors.end(), [&](const auto& item) {
      return item.first == rename.first || item.first.starts_with(rename.first + ".");
    });
    if (is_used) tensors = renamed(tensors, {rename});
  }
  return tensors;
}

Numbers by_names(const TorchOptimizer& optimizer, const Parameters& own, const ModelOptions& model,
                 const std::string& path) {
  WeightsFile listed;
  for (const auto& group : optimizer.groups) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      listed.content.tensors.set(group.names[i], at::scalar_tensor(group.parameters[i], at::kLong));
    }
  }
  Numbers numbers;
  const TensorMap names = renamed_where_it_fits(state_dict_of(listed).tensors, model);
  const auto named = by_file_name(own, names);
  for (const auto& [name, number] : names) {
    const auto parameter = named.find(name);
    if (parameter == named.end()) {
      fail_start(path, "its optimizer has state of " + name + ", which the model has not",
                 "rename with model.init_rename, or drop optimizer.init_from");
    }
    numbers.emplace(number.item<int64_t>(), parameter->second);
  }
  return numbers;
}

bool group_fits(const TorchOptimizer::Group& group, const TorchOptimizer& optimizer,
                const Parameters& candidates) {
  if (group.parameters.size() != candidates.size()) return false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto state = optimizer.state.find(group.parameters[i]);
    if (state == optimizer.state.end()) continue;
    for (const auto& [name, tensor] : state->second.tensors) {
      if (name != "step" && tensor.sizes() != candidates[i].tensor.sizes()) return false;
    }
  }
  return true;
}

// Maps each group to the parameters with its weight decay, in order: to all of them or, if these do
// not fit, to the trained ones. A single group may have any weight decay.
Numbers by_order(const TorchOptimizer& optimizer, const Parameters& own,
                 const std::map<std::string, double>& weight_decays, const std::string& path) {
  Parameters trained;
  for (const auto& parameter : own) {
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  }
  Numbers numbers;
  std::set<std::string> taken;
  for (const auto& group : optimizer.groups) {
    const double decay = option_of(group, "weight_decay", 0);
    Parameters found;
    for (const Parameters* from : {&own, &std::as_const(trained)}) {
      Parameters candidates;
      for (const auto& parameter : *from) {
        const bool alone = optimizer.groups.size() == 1;
        const bool same = std::abs(weight_decays.at(parameter.name) - decay) < 1e-12;
        if ((alone || same) && taken.count(parameter.name) == 0) candidates.push_back(parameter);
      }
      found = candidates;
      if (group_fits(group, optimizer, candidates)) break;
    }
    if (!group_fits(group, optimizer, found)) {
      fail_start(
          path,
          fmt::format("a group of {} parameters with weight decay {} fits none of this model ({} "
                      "parameters, {} with that weight decay, in other shapes or number)",
                      to_text(std::ssize(group.parameters)), to_text(decay),
                      to_text(std::ssize(own)), to_text(std::ssize(found))),
          "give optimizer.groups as torch had them, or make the torch optimizer of "
          "model.named_parameters(), which names them");
    }
    for (size_t i = 0; i < found.size(); ++i) {
      numbers.emplace(group.parameters[i], found[i]);
      taken.insert(found[i].name);
    }
  }
  return numbers;
}

}  // namespace

void fail_start(const std::string& path, const std::string& what, const std::string& advice) {
  throw CheckpointError(fmt::format("[optimizer] init_from {}: {}; {}", path, what, advice));
}

double option_of(const TorchOptimizer::Group& group, const std::string& name, double otherwise) {
  const auto found = group.options.find(name);
  if (found == group.options.end()) return otherwise;
  if (const auto* real = std::get_if<double>(&found->second)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  if (const auto* truth = std::get_if<bool>(&found->second)) return *truth ? 1 : 0;
  return otherwise;
}

std::map<int64_t, NamedParameter> numbered(const TorchOptimizer& optimizer,
                                           const std::vector<NamedParameter>& own,
                                           const std::map<std::string, double>& weight_decays,
                                           const ModelOptions& model, const WeightsFile& file,
                                           const std::string& path) {
  if (!optimizer.groups.front().names.empty()) return by_names(optimizer, own, model, path);
  const TensorMap there = renamed_where_it_fits(state_dict_of(file).tensors, model);
  return by_order(optimizer, in_file_order(own, there), weight_decays, path);
}

}  // namespace tanren
