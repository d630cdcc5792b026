#include "tanren/anatomy/report.h"

#include "tanren/base/json_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tanren {

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson kinds_json(const std::array<int64_t, kNumMemoryKinds>& bytes) {
  OrderedJson json = OrderedJson::object();
  for (size_t i = 0; i < bytes.size(); ++i) {
    json[std::string(name(static_cast<MemoryKind>(i)))] = bytes.at(i);
  }
  return json;
}

OrderedJson subject_json(const AnatomySubject& s) {
  return {{"name", s.name},
          {"model", s.model},
          {"device", s.device},
          {"threads", s.threads},
          {"precision", s.precision},
          {"optimizer", s.optimizer},
          {"parameters", s.parameters},
          {"trainable", s.trainable},
          {"global_batch", s.global_batch},
          {"microbatch", s.microbatch},
          {"tokens", s.tokens},
          {"steps", s.steps}};
}

OrderedJson operations_json(const Anatomy& anatomy) {
  OrderedJson classes = OrderedJson::array(), operators = OrderedJson::array();
  for (const ClassRow& row : anatomy.classes) {
    classes.push_back({{"class", name(row.of)},
                       {"seconds", row.seconds},
                       {"share", row.share},
                       {"flops", row.flops},
                       {"flops_share", row.flops_share},
                       {"bytes", row.bytes},
                       {"flops_per_byte", row.flops_per_byte()},
                       {"bytes_per_second", row.bytes_per_second()},
                       {"flops_per_second", row.flops_per_second()}});
  }
  for (const OperatorTotal& one : anatomy.operators.operators) {
    operators.push_back({{"name", one.name},
                         {"class", name(one.of)},
                         {"pass", name(one.pass)},
                         {"calls", one.calls},
                         {"seconds", one.seconds},
                         {"flops", one.flops},
                         {"bytes", one.bytes}});
  }
  OrderedJson nodes = OrderedJson::array(), blocks = OrderedJson::array();
  for (const NodeTotal& node : anatomy.operators.nodes) {
    nodes.push_back({{"name", node.name}, {"calls", node.calls}, {"seconds", node.seconds}});
  }
  for (const BlockTotal& block : anatomy.operators.blocks) {
    blocks.push_back({{"name", block.name},
                      {"forward_seconds", block.forward_seconds},
                      {"backward_seconds", block.backward_seconds},
                      {"forward_flops", block.forward_flops},
                      {"backward_flops", block.backward_flops}});
  }
  return {{"classes", classes},
          {"recorded_steps", anatomy.operators.times.steps},
          {"operators", operators},
          {"backward_nodes", nodes},
          {"blocks", blocks}};
}

OrderedJson cuts_json(const std::vector<MeasuredCut>& cuts) {
  OrderedJson json = OrderedJson::array();
  for (const MeasuredCut& cut : cuts) {
    json.push_back({{"stages", cut.stages},
                    {"cut_at", cut.cut_at},
                    {"slowest_seconds", cut.slowest},
                    {"planned_cut_at", cut.planned},
                    {"planned_slowest_seconds", cut.planned_slowest},
                    {"planned_over_measured", cut.ratio()}});
  }
  return json;
}

OrderedJson memory_json(const Anatomy& anatomy) {
  const MemoryTimeline& memory = anatomy.memory;
  OrderedJson stages = OrderedJson::array(), owners = OrderedJson::array(),
              passes = OrderedJson::array();
  for (const MemoryStage& stage : anatomy.stages) {
    OrderedJson row{
        {"stage", stage.name}, {"tensor_bytes", stage.tensors}, {"process_bytes", stage.process}};
    if (stage.cached) row["cached_bytes"] = *stage.cached;
    if (stage.context) row["context_bytes"] = *stage.context;
    stages.push_back(std::move(row));
  }
  for (const MemoryOwner& owner : memory.owners) {
    owners.push_back({{"kind", name(owner.kind)},
                      {"block", owner.block},
                      {"at_peak", owner.at_peak},
                      {"bytes", owner.bytes}});
  }
  for (const PassMark& mark : memory.passes) {
    passes.push_back({{"moment", mark.event}, {"pass", name(mark.pass)}});
  }
  OrderedJson json{{"stages", stages},
                   {"peak_bytes", memory.peak_bytes},
                   {"before_step_bytes", memory.before_bytes},
                   {"after_step_bytes", memory.after_bytes},
                   {"at_peak", kinds_json(memory.at_peak)},
                   {"bytes_per_parameter",
                    static_cast<double>(memory.peak_bytes) /
                        static_cast<double>(std::max<int64_t>(anatomy.subject.parameters, 1))},
                   {"peak_moment", memory.peak_moment},
                   {"passes", passes},
                   {"total", memory.total},
                   {"owners", owners}};
  if (anatomy.predicted) {
    json["predicted"] = {{"peak_bytes", anatomy.predicted->peak},
                         {"at_peak", kinds_json(anatomy.predicted->at_peak)},
                         {"measured_as_predicted", kinds_json(memory.as_tagged)}};
  } else {
    json["not_predicted"] = anatomy.not_predicted;
  }
  return json;
}

}  // namespace

std::string anatomy_json(const Anatomy& anatomy) {
  const StepTimes& t = anatomy.times;
  OrderedJson advice = OrderedJson::array();
  for (const Advice& one : anatomy.advice) {
    advice.push_back({{"change", one.change},
                      {"time_gain", one.time_gain},
                      {"bytes_saved", one.bytes_saved},
                      {"seconds", one.seconds},
                      {"base_seconds", one.base_seconds},
                      {"peak_bytes", one.peak},
                      {"base_peak_bytes", one.base_peak},
                      {"peak_measured", one.peak_measured},
                      {"alternating", one.alternating},
                      {"steps", one.steps},
                      {"note", one.note}});
  }
  const OrderedJson json{
      {"subject", subject_json(anatomy.subject)},
      {"step",
       {{"seconds", t.total()},
        {"loader", t.loader},
        {"forward", t.forward},
        {"backward", t.backward},
        {"update", t.update},
        {"backward_over_forward", t.forward > 0 ? t.backward / t.forward : 0},
        {"samples_per_second",
         t.total() > 0 ? static_cast<double>(anatomy.subject.global_batch) / t.total() : 0},
        {"listening_seconds", anatomy.listening_seconds}}},
      {"machine",
       {{"flops_per_second", anatomy.machine.flops_per_second},
        {"dtype", anatomy.machine.dtype},
        {"bytes_per_second", anatomy.machine.bytes_per_second}}},
      {"operations", operations_json(anatomy)},
      {"cuts", cuts_json(anatomy.cuts)},
      {"not_cut", anatomy.not_cut},
      {"memory", memory_json(anatomy)},
      {"advice", advice},
      {"tried", anatomy.tried}};
  return json_text(json);
}

}  // namespace tanren
