// Anatomy: all results of `tanren anatomy`, as data, and its three texts. Filled by
// anatomy/anatomy; the writers read nothing else. Plain values; not thread-safe.
#pragma once

#include "tanren/anatomy/machine_speed.h"
#include "tanren/anatomy/measured_cut.h"
#include "tanren/anatomy/memory_timeline.h"
#include "tanren/anatomy/operator_recorder.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The run that was examined.
struct AnatomySubject {
  std::string name, model, device, precision, optimizer;
  int64_t threads = 1;
  int64_t parameters = 0, trainable = 0;
  int64_t global_batch = 0, microbatch = 0;
  int64_t tokens = 0;     // of a step; 0: the samples are no sequences
  int64_t steps = 0;      // measured
  int64_t stages = 1;     // of the run; the whole model is measured
  bool is_graph = false;  // one compiled graph computes gradients in the forward
};

// Seconds of one step, measured without recording operators.
struct StepTimes {
  double loader = 0, forward = 0, backward = 0, update = 0;
  double total() const { return loader + forward + backward + update; }
};

struct ClassRow {
  OperatorClass of = OperatorClass::idle;
  double seconds = 0;  // of one step, as are the sums below
  double share = 0;    // of the step's time
  int64_t flops = 0;
  double flops_share = 0;
  int64_t bytes = 0;
  double flops_per_byte() const;  // 0 if no bytes are known to move
  double bytes_per_second() const;
  double flops_per_second() const;
};

struct MemoryStage {
  std::string name;
  int64_t tensors = 0;  // bytes that tensors hold
  int64_t process = 0;  // resident on the CPU; in use on an accelerator
  // `cached`: bytes that the allocator keeps beyond the tensors. `context`, on an accelerator:
  // bytes in use outside the allocator, by the context and other processes. Absent: unknown.
  std::optional<int64_t> cached, context;
};

struct PredictedMemory {
  int64_t peak = 0;
  std::array<int64_t, kNumMemoryKinds> at_peak = {};
};

// The measured gain of one variant of the run.
struct Advice {
  std::string change;    // "precision.mode = bf16"
  double time_gain = 0;  // share of the step's time that is saved; below 0: lost
  int64_t bytes_saved = 0;
  double seconds = 0, base_seconds = 0;  // of a step, medians
  int64_t peak = 0, base_peak = 0;
  bool peak_measured = true;  // else predicted
  bool alternating = true;    // steps of both took turns
  int64_t steps = 0;          // of each
  std::string note;           // what else it changes; may be empty
};

struct Anatomy {
  AnatomySubject subject;
  StepTimes times;
  double listening_seconds = 0;  // of a step while its operators were recorded
  MachineSpeed machine;
  std::array<ClassRow, kNumOperatorClasses> classes;
  OperatorRecording operators;  // sums over subject.steps
  std::vector<MeasuredCut> cuts;
  std::string not_cut;  // why there are none
  std::vector<MemoryStage> stages;
  MemoryTimeline memory;
  std::optional<PredictedMemory> predicted;
  std::string not_predicted;  // why
  std::vector<Advice> advice;
  std::vector<std::string> tried;  // variants that ran, whether they helped or not
};

// The optimizer's FLOPs and bytes. class_rows() makes the table of classes from these and the
// recording.
struct UpdateWork {
  int64_t flops = 0, bytes = 0;
};
std::array<ClassRow, kNumOperatorClasses> class_rows(const OperatorRecording& recording,
                                                     const StepTimes& times,
                                                     const UpdateWork& update);

// For the console and anatomy.txt: tables of at most 100 columns.
std::string anatomy_text(const Anatomy& anatomy);
// One JSON object, with all digits of every number.
std::string anatomy_json(const Anatomy& anatomy);
// A self-contained page, to be read or printed.
std::string anatomy_html(const Anatomy& anatomy);

}  // namespace tanren
