#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/plan/passes.h"

#include <algorithm>

namespace tanren {

namespace {

[[noreturn]] void refuse_for_graph(const std::string& what, const std::string& why,
                                   const std::string& fix) {
  throw ConfigError(
      fmt::format("[plan] {}: the model is one compiled graph, {}; {}", what, why, fix));
}

void check_graph_options(const RunConfig& config) {
  const std::string no_blocks = "which has no blocks";
  if (!config.memory.recompute.empty()) {
    refuse_for_graph("memory.recompute", no_blocks,
                     "drop it, or recompute inside the exported module (torch.utils.checkpoint)");
  }
  if (!config.memory.offload.empty()) refuse_for_graph("memory.offload", no_blocks, "drop it");
  if (config.model.memory_format == "channels_last") {
    refuse_for_graph("model.memory_format = \"channels_last\"",
                     "which reads its weights as they were exported", "drop it");
  }
  if (config.average.buffers == "estimate") {
    refuse_for_graph("average.buffers = \"estimate\"",
                     "whose batch norms cannot be told to measure anew",
                     "take \"average\" or \"copy\"");
  }
  if (config.parallel.buffers == "synchronised") {
    refuse_for_graph("parallel.buffers = \"synchronised\"",
                     "whose batch norms see this rank's samples alone",
                     "take \"mean\" or \"first\"");
  }
}

void check_graph_device(const GraphFacts& graph, const Plan& plan) {
  const std::string& device = plan.device.device;
  if (device.substr(0, device.find(':')) == graph.device) return;
  refuse_for_graph(
      fmt::format("run.device is {}", device), fmt::format("exported for {}", graph.device),
      fmt::format("set run.device = \"{}\", or export it for the other", graph.device));
}

// A graph that was exported in training mode also computes a frozen module in this mode: its batch
// norms would change their statistics and its dropout would draw.
void check_graph_freezing(const Request& request, const GraphFacts& graph) {
  if (!graph.draws.empty() && !request.profile.still.empty()) {
    refuse_for_graph(fmt::format("model.freeze holds all of {}, whose dropout would go on to draw",
                                 request.profile.still.front()),
                     "exported in training mode",
                     "export it with freeze=[…], or without dropout there");
  }
  for (const std::string& module : request.profile.still) {
    for (const std::string& buffer : graph.changed) {
      if (!buffer.starts_with(module + ".")) continue;
      refuse_for_graph(fmt::format("model.freeze holds all of {}, and its {} would go on to change",
                                   module, buffer),
                       "exported in training mode",
                       fmt::format("export it with freeze=[\"{}.*\"], or leave a parameter of {} "
                                   "to be trained",
                                   module, module));
    }
  }
  for (const UnfreezeOptions& table : request.config.model.unfreeze) {
    for (const std::string& parameter : graph.frozen) {
      if (!matches_any(table.parameters, parameter)) continue;
      refuse_for_graph("model.unfreeze matches " + parameter, "exported without gradients for it",
                       "drop the pattern, or export it without freeze");
    }
  }
}

// If a term has weight 0, other models give no gradient to parameters that only this term depends
// on. A graph gives them zeros, with which an optimizer would still decay them.
void check_graph_weights(const Plan& plan, const ModelProfile& profile) {
  for (size_t i = 0; i < profile.objectives.size(); ++i) {
    const ObjectiveFacts& facts = profile.objectives[i];
    const auto& asked = plan.objectives.at(i).weights;
    for (size_t term = 0; term < facts.terms.size(); ++term) {
      const auto own = asked.find(facts.terms[term]);
      const double of_task = term < facts.weights.size() ? facts.weights[term] : 1;
      if ((own == asked.end() ? of_task : own->second) != 0) continue;
      refuse_for_graph(
          fmt::format("objectives.{}.weights gives {} the weight 0", facts.name, facts.terms[term]),
          "which computes its gradients all the same",
          fmt::format("drop the weight, or export the model without {}", facts.terms[term]));
    }
  }
}

}  // namespace

void plan_graph(const Request& request, Plan& plan) {
  if (!request.profile.graph) return;
  const GraphFacts& graph = *request.profile.graph;
  check_graph_options(request.config);
  check_graph_device(graph, plan);
  check_graph_freezing(request, graph);
  check_graph_weights(plan, request.profile);
  std::string reason = fmt::format(
      "compiled by torch {} for {}, {}; it draws {}; its gradients arrive at once, so {} beside "
      "the "
      "weights and a reduction has little to overlap with",
      graph.torch, graph.instructions, graph.sizes,
      graph.draws.empty() ? "nothing" : "from torch's generator (" + graph.draws + ")",
      size_text(request.profile.num_trainable * (graph.precision == "fp64" ? 8 : 4)));
  plan.lines.push_back({"graph", graph.checksum, Source::asked, std::move(reason)});
}

}  // namespace tanren
