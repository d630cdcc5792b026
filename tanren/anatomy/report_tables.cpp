#include "tanren/anatomy/report_tables.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/page/units.h"

#include <algorithm>
#include <string_view>

namespace tanren {

namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

// "12 (34 %)" of a roof; "-" for zero.
std::string of_roof(double value, double roof) {
  if (value <= 0) return "-";
  return fmt::format("{:.1f} ({:.0f} %)", value * 1e-9, 100 * ratio(value, roof));
}

std::string per_parameter(int64_t bytes, int64_t parameters) {
  return fmt::format("{:.2f}", ratio(static_cast<double>(bytes), static_cast<double>(parameters)));
}

constexpr size_t kLongestName = 36;

// Shortened in the middle: the end distinguishes forward from backward.
std::string short_name(std::string_view name) {
  if (name.rfind("aten::", 0) == 0) name.remove_prefix(6);
  if (name.size() <= kLongestName) return std::string(name);
  return std::string(name.substr(0, 18)) + "…" + std::string(name.substr(name.size() - 17));
}

// The class of one operator.
std::string_view short_class(OperatorClass of) {
  switch (of) {
    case OperatorClass::contractions: return "contraction";
    case OperatorClass::normalisations: return "normalisation";
    case OperatorClass::data_movement: return "movement";
    default: return name(of);
  }
}

// "torch::autograd::CppNode<tanren::(anonymous namespace)::GeluFunction>" → "GeluFunction".
std::string node_name(std::string name) {
  for (const char* part : {"torch::autograd::CppNode<", "torch::autograd::", "tanren::",
                           "(anonymous namespace)::", "autograd::engine::evaluate_function: "}) {
    for (size_t at = name.find(part); at != std::string::npos; at = name.find(part)) {
      name.erase(at, std::string_view(part).size());
    }
  }
  if (!name.empty() && name.back() == '>') name.pop_back();
  return short_name(name);
}

int64_t short_lived(const std::array<int64_t, kNumMemoryKinds>& bytes) {
  return bytes[static_cast<size_t>(MemoryKind::activations)] +
         bytes[static_cast<size_t>(MemoryKind::temporaries)];
}

}  // namespace

std::vector<std::string> subject_lines(const Anatomy& anatomy) {
  const AnatomySubject& s = anatomy.subject;
  const MachineSpeed& machine = anatomy.machine;
  std::string batch = fmt::format("{} samples a step", s.global_batch);
  if (s.microbatch != s.global_batch) batch += fmt::format(", {} a microstep", s.microbatch);
  if (s.tokens > 0) batch += fmt::format(", {} tokens", count_text(s.tokens));
  std::vector<std::string> lines = {
      fmt::format("{}: {}, {} parameters, {} trained", s.name, s.model, count_text(s.parameters),
                  s.trainable == s.parameters ? "all" : count_text(s.trainable)),
      fmt::format("{}, {} thread{}, {}, {}; {}; {} steps measured", s.device, s.threads,
                  s.threads == 1 ? "" : "s", s.precision, s.optimizer, batch, s.steps),
      fmt::format("this machine, measured: {}FLOP/s ({} product of {} × {}), {}B/s (copy of {})",
                  scaled_text(machine.flops_per_second), machine.dtype, machine.matrix,
                  machine.matrix, scaled_text(machine.bytes_per_second),
                  mebibytes_text(machine.copy_bytes))};
  if (s.stages > 1) {
    lines.push_back(fmt::format(
        "the whole model on one rank: the {} stages of parallel.pipeline are left out", s.stages));
  }
  return lines;
}

Table step_table(const Anatomy& anatomy) {
  const StepTimes& t = anatomy.times;
  const AnatomySubject& s = anatomy.subject;
  Table table{"Step", {"pass", "time", "share", ""}, {}, 1, "", true};
  const auto row = [&](const char* pass, double seconds, const std::string& remark) {
    table.rows.push_back(
        {pass, time_text(seconds), percent_text(ratio(seconds, t.total())), remark});
  };
  row("loader", t.loader, "");
  row("forward", t.forward, s.is_graph ? "with the backward of the model's graph" : "");
  row("backward", t.backward, fmt::format("{:.2f} × forward", ratio(t.backward, t.forward)));
  row("update", t.update, "");
  row("step", t.total(),
      fmt::format("{:.2f} samples/s", ratio(static_cast<double>(s.global_batch), t.total())));
  if (s.tokens > 0) {
    table.rows.back().back() +=
        fmt::format(", {:.0f} tokens/s", ratio(static_cast<double>(s.tokens), t.total()));
  }
  return table;
}

Table class_table(const Anatomy& anatomy) {
  Table table{"Operations",
              {"class", "time", "share", "FLOP", "share", "FLOP/B", "GB/s", "GFLOP/s"},
              {},
              1,
              ""};
  for (const ClassRow& row : anatomy.classes) {
    table.rows.push_back(
        {std::string(name(row.of)), time_text(row.seconds), percent_text(row.share),
         scaled_text(static_cast<double>(row.flops)),
         row.flops > 0 ? fmt::format("{:.2f} %", 100 * row.flops_share) : "-",
         row.flops > 0 && row.bytes > 0 ? fmt::format("{:.2f}", row.flops_per_byte()) : "-",
         of_roof(row.bytes_per_second(), anatomy.machine.bytes_per_second),
         of_roof(row.flops_per_second(), anatomy.machine.flops_per_second)});
  }
  table.note = fmt::format(
      "One step. Bytes: what an operator reads and writes, once each; in brackets: of what this "
      "machine\n"
      "copies, and of what it multiplies. idle: between operators.\nA step takes {} while its "
      "operators are heard.",
      time_text(anatomy.listening_seconds));
  return table;
}

Table operator_table(const Anatomy& anatomy, size_t most) {
  Table table{"Operators",
              {"operator", "pass", "class", "calls", "time", "share", "FLOP", "GFLOP/s", "GB/s"},
              {},
              3,
              ""};
  const auto steps = static_cast<double>(std::max<int64_t>(anatomy.operators.times.steps, 1));
  const auto& all = anatomy.operators.operators;
  for (size_t i = 0; i < std::min(most, all.size()); ++i) {
    const OperatorTotal& one = all[i];
    const double seconds = one.seconds / steps;
    const auto rate = [&](int64_t amount) {
      return amount > 0 && one.seconds > 0
                 ? fmt::format("{:.1f}", static_cast<double>(amount) / one.seconds * 1e-9)
                 : std::string("-");
    };
    table.rows.push_back(
        {short_name(one.name), std::string(name(one.pass)), std::string(short_class(one.of)),
         to_text(one.calls / static_cast<int64_t>(steps)), time_text(seconds),
         percent_text(ratio(seconds, anatomy.times.total())),
         scaled_text(static_cast<double>(one.flops) / steps), rate(one.flops), rate(one.bytes)});
  }
  if (all.size() > most) {
    table.note = fmt::format("The {} slowest of {}; anatomy.json has all.", most, all.size());
  }
  return table;
}

Table node_table(const Anatomy& anatomy, size_t most) {
  Table table{"Backward, by autograd's nodes", {"node", "calls", "time", "of backward"}, {}, 1, ""};
  const PassTimes& times = anatomy.operators.times;
  const auto steps = static_cast<double>(std::max<int64_t>(times.steps, 1));
  const auto& all = anatomy.operators.nodes;
  for (size_t i = 0; i < std::min(most, all.size()); ++i) {
    table.rows.push_back(
        {node_name(all[i].name), to_text(all[i].calls / static_cast<int64_t>(steps)),
         time_text(all[i].seconds / steps), percent_text(ratio(all[i].seconds, times.backward))});
  }
  return table;
}

Table block_table(const Anatomy& anatomy) {
  Table table{"Blocks",
              {"block", "forward", "backward", "ratio", "share", "FLOP fwd", "FLOP bwd"},
              {},
              1,
              "Time of operators in each block (run_block in the model); (none): outside of any."};
  const auto steps = static_cast<double>(std::max<int64_t>(anatomy.operators.times.steps, 1));
  for (const BlockTotal& block : anatomy.operators.blocks) {
    const double forward = block.forward_seconds / steps, backward = block.backward_seconds / steps;
    table.rows.push_back({block.name.empty() ? "(none)" : block.name, time_text(forward),
                          time_text(backward), fmt::format("{:.2f}", ratio(backward, forward)),
                          percent_text(ratio(forward + backward, anatomy.times.total())),
                          scaled_text(static_cast<double>(block.forward_flops) / steps),
                          scaled_text(static_cast<double>(block.backward_flops) / steps)});
  }
  return table;
}

Table cut_table(const Anatomy& anatomy) {
  Table table{
      "Cuts into stages",
      {"by", "stages", "slowest", "ratio", "parallel.cut_at"},
      {},
      1,
      "Slowest: forward and backward of the slowest stage, by the seconds of its operators.\n"
      "plan: by multiply-adds. memory.limit is left out.",
      true};
  if (anatomy.cuts.empty()) table.note = "none: " + anatomy.not_cut;
  for (const MeasuredCut& cut : anatomy.cuts) {
    const std::string stages = to_text(cut.stages);
    table.rows.push_back({"seconds", stages, time_text(cut.slowest), "1.00", join(cut.cut_at)});
    table.rows.push_back({"plan", stages, time_text(cut.planned_slowest),
                          fmt::format("{:.2f}", cut.ratio()), join(cut.planned)});
  }
  return table;
}

Table stage_table(const Anatomy& anatomy) {
  const bool cpu = anatomy.subject.device == "cpu";
  Table table{"Memory, stage by stage",
              {"stage", "tensors", "cached"},
              {},
              1,
              cpu ? "resident: of the process, its program and libraries included"
                  : "context: in use beyond the allocator, by libraries and other processes too"};
  if (!cpu) table.head.emplace_back("context");
  table.head.emplace_back(cpu ? "resident" : "in use on the device");
  const auto known = [](const std::optional<int64_t>& bytes) {
    return bytes ? mebibytes_text(*bytes) : std::string("-");
  };
  for (const MemoryStage& stage : anatomy.stages) {
    std::vector<std::string> row = {stage.name, mebibytes_text(stage.tensors), known(stage.cached)};
    if (!cpu) row.push_back(known(stage.context));
    row.push_back(mebibytes_text(stage.process));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table memory_table(const Anatomy& anatomy) {
  Table table{
      "Memory at the step's peak", {"kind", "bytes", "share", "bytes/parameter"}, {}, 1, ""};
  const MemoryTimeline& memory = anatomy.memory;
  const auto row = [&](const std::string& kind, int64_t bytes) {
    table.rows.push_back(
        {kind, mebibytes_text(bytes),
         percent_text(ratio(static_cast<double>(bytes), static_cast<double>(memory.peak_bytes))),
         per_parameter(bytes, anatomy.subject.parameters)});
  };
  for (const MemoryKind kind :
       {MemoryKind::weights, MemoryKind::gradients, MemoryKind::optimizer, MemoryKind::averages,
        MemoryKind::casts, MemoryKind::key_values, MemoryKind::batches, MemoryKind::activations,
        MemoryKind::temporaries, MemoryKind::workspaces, MemoryKind::other}) {
    const int64_t bytes = memory.at_peak.at(static_cast<size_t>(kind));
    if (bytes != 0) row(std::string(name(kind)), bytes);
  }
  row("all", memory.peak_bytes);
  table.note =
      "activations: made in forward, given back in backward; temporaries: made and given back in "
      "one pass";
  return table;
}

Table prediction_table(const Anatomy& anatomy) {
  Table table{
      "Predicted and measured peak", {"kind", "predicted", "measured", "off by"}, {}, 1, ""};
  if (!anatomy.predicted) {
    table.note = "not predicted: " + anatomy.not_predicted;
    return table;
  }
  const auto row = [&](const std::string& kind, int64_t predicted, int64_t measured) {
    if (predicted == 0 && measured == 0) return;
    const double off =
        ratio(static_cast<double>(predicted - measured), static_cast<double>(measured));
    table.rows.push_back({kind, mebibytes_text(predicted), mebibytes_text(measured),
                          measured == 0 ? "-" : fmt::format("{:+.2f} %", 100 * off)});
  };
  const auto& predicted = anatomy.predicted->at_peak;
  const auto& measured = anatomy.memory.as_tagged;
  for (const MemoryKind kind : {MemoryKind::weights, MemoryKind::gradients, MemoryKind::optimizer,
                                MemoryKind::averages, MemoryKind::casts, MemoryKind::key_values,
                                MemoryKind::batches, MemoryKind::workspaces, MemoryKind::other}) {
    const auto i = static_cast<size_t>(kind);
    row(std::string(name(kind)), predicted.at(i), measured.at(i));
  }
  row("activations, temporaries", short_lived(predicted), short_lived(measured));
  row("all", anatomy.predicted->peak, anatomy.memory.peak_bytes);
  return table;
}

std::vector<std::string> advice_lines(const Anatomy& anatomy) {
  std::vector<std::string> lines;
  for (const Advice& advice : anatomy.advice) {
    const std::string peak =
        fmt::format("peak {} → {}, {}", mebibytes_text(advice.base_peak),
                    mebibytes_text(advice.peak), advice.peak_measured ? "measured" : "predicted");
    std::string line =
        fmt::format("{}: {}, {} time ({} → {} a step, median of {}{}; {})", advice.change,
                    signed_mebibytes(-advice.bytes_saved), signed_percent(-advice.time_gain),
                    time_text(advice.base_seconds), time_text(advice.seconds), advice.steps,
                    advice.alternating ? ", taking turns" : "", peak);
    if (!advice.note.empty()) line += "; " + advice.note;
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace tanren
