// OperatorRecorder: measures how long the operators of training steps take, with their FLOPs,
// bytes, block and pass, through torch's RecordFunction. It counts the outermost operators that are
// not merely composed of others. One recorder at a time in a process, on the step's thread;
// autograd's threads inherit it. Records only between begin_step and end_step. Used by
// anatomy/anatomy.
#pragma once

#include "tanren/anatomy/operator_class.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

enum class Pass : uint8_t { forward, backward, update };
constexpr size_t kNumPasses = 3;
constexpr std::array<std::string_view, kNumPasses> kPassNames = {"forward", "backward", "update"};
constexpr std::string_view name(Pass pass) { return kPassNames[static_cast<size_t>(pass)]; }

// Sums over the recorded steps. Operators of the update are not recorded: only its time is.
struct OperatorTotal {
  std::string name;
  OperatorClass of = OperatorClass::element_wise;
  Pass pass = Pass::forward;
  int64_t calls = 0;
  double seconds = 0;
  int64_t flops = 0;
  int64_t bytes = 0;  // read and written, each tensor once
};

struct BlockTotal {
  std::string name;  // empty: outside of any block
  double forward_seconds = 0, backward_seconds = 0;
  int64_t forward_flops = 0, backward_flops = 0;
};

// A node of the autograd graph, under autograd's name, with all operators that it calls.
struct NodeTotal {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
};

struct PassTimes {
  int64_t steps = 0;
  double forward = 0, backward = 0, update = 0;  // seconds
  double total() const { return forward + backward + update; }
};

struct OperatorRecording {
  PassTimes times;
  std::vector<OperatorTotal> operators;  // largest time first
  std::vector<BlockTotal> blocks;        // in the order of the forward
  std::vector<NodeTotal> nodes;          // largest time first
};

enum class Detail { passes, operators };  // passes: only their times

class OperatorRecorder {
 public:
  // Called at these moments, on the thread where they happen; may be empty.
  struct Hooks {
    std::function<void()> begin_forward, end_forward, after_node;  // after each node of backward
  };
  // `finish` waits for the device's pending work; empty if kernels end before their call returns.
  explicit OperatorRecorder(Detail detail, std::function<void()> finish, Hooks hooks);
  OperatorRecorder(Detail detail, std::function<void()> finish)
      : OperatorRecorder(detail, std::move(finish), Hooks()) {}
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  void begin_step();
  void begin_forward();  // of a microstep
  void end_forward();
  void end_step();

  OperatorRecording recording() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tanren
