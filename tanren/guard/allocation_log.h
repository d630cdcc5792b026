// AllocationLog: which tensors and autograd nodes the operators of some steps made, and which of
// them are still alive later. It uses torch's operator observer, so it works for any model and
// loop. It holds only weak references. Recording adds some microseconds to each operator; otherwise
// it costs nothing. Only one log records at a time in a process (a second one sees nothing). Used
// by LeakDetector.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// What one recorded step made and is still alive.
struct Survivors {
  int64_t nodes = 0;
  int64_t tensors = 0;         // storages
  int64_t bytes = 0;           // of these storages
  std::string last_node;       // the youngest node that no other live one needs: "AddBackward0"
  std::string last_operator;   // that made last_node: "aten::add_ in block head"
  std::string largest_tensor;  // operator that made the largest storage
};

class AllocationLog {
 public:
  // Starts to record the first step, on all threads. Not to be called while operators run.
  AllocationLog();
  ~AllocationLog();
  AllocationLog(const AllocationLog&) = delete;
  AllocationLog& operator=(const AllocationLog&) = delete;

  void next_step();
  void stop();
  // Survivors of the step with this number (from 0).
  Survivors survivors(int64_t step) const;

 private:
  struct Allocation {
    int64_t step;
    std::string made_by;
    std::weak_ptr<torch::autograd::Node> node;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };
  struct Observer;  // torch's callbacks

  void add(const at::RecordFunction& fn, const std::vector<c10::StorageImpl*>& inputs,
           const at::Tensor& tensor);

  mutable std::mutex mutex_;
  std::vector<Allocation> log_;  // guarded by mutex_
  int64_t step_ = 0;             // guarded by mutex_
  std::optional<uint64_t> handle_;
};

}  // namespace tanren
