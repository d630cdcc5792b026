#include "tanren/anatomy/report.h"

#include <algorithm>

namespace tanren {

double ClassRow::flops_per_byte() const {
  return bytes > 0 ? static_cast<double>(flops) / static_cast<double>(bytes) : 0;
}
double ClassRow::bytes_per_second() const {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}
double ClassRow::flops_per_second() const {
  return seconds > 0 ? static_cast<double>(flops) / seconds : 0;
}

std::array<ClassRow, kNumOperatorClasses> class_rows(const OperatorRecording& recording,
                                                     const StepTimes& times,
                                                     const UpdateWork& update) {
  std::array<ClassRow, kNumOperatorClasses> rows;
  for (size_t i = 0; i < rows.size(); ++i) rows[i].of = static_cast<OperatorClass>(i);
  const auto row = [&](OperatorClass of) -> ClassRow& { return rows.at(static_cast<size_t>(of)); };
  const int64_t steps = std::max<int64_t>(recording.times.steps, 1);
  double covered = 0;
  for (const OperatorTotal& total : recording.operators) {
    covered += total.seconds / static_cast<double>(steps);
  }
  // Steps take longer while operators are recorded; operators cannot take more than their passes.
  const double room = times.forward + times.backward;
  const double scale = covered > room ? room / covered : 1;
  for (const OperatorTotal& total : recording.operators) {
    ClassRow& of = row(total.of);
    of.seconds += scale * total.seconds / static_cast<double>(steps);
    of.flops += total.flops / steps;
    of.bytes += total.bytes / steps;
  }
  row(OperatorClass::optimizer).seconds = times.update;
  row(OperatorClass::optimizer).flops = update.flops;
  row(OperatorClass::optimizer).bytes = update.bytes;
  row(OperatorClass::loader).seconds = times.loader;
  row(OperatorClass::idle).seconds = room - scale * covered;
  double seconds = 0;
  int64_t flops = 0;
  for (const ClassRow& one : rows) {
    seconds += one.seconds;
    flops += one.flops;
  }
  for (ClassRow& one : rows) {
    one.share = seconds > 0 ? one.seconds / seconds : 0;
    one.flops_share = flops > 0 ? static_cast<double>(one.flops) / static_cast<double>(flops) : 0;
  }
  return rows;
}

}  // namespace tanren
