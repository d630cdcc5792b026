// BlockWatch: observes the blocks and operators of this thread's forward, and finds the tensors
// that each outermost block reads, makes, keeps and returns (Note [Where a model can be cut],
// block_profile.h). Internal to block_profile.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/dry/forward_work.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/plan/pipeline_cut.h"

#include <ATen/record_function.h>
#include <c10/core/TensorImpl.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

class BlockWatch {
 public:
  // Observes while it lives. A thread may have one at a time, in a BlockTrailScope. `tracing` and
  // `work` observe the same forward. The module and the batch must outlive it.
  BlockWatch(const torch::nn::Module& module, const Batch& batch, const TraceScope& tracing,
             const ForwardWork& work);
  ~BlockWatch();
  BlockWatch(const BlockWatch&) = delete;
  BlockWatch& operator=(const BlockWatch&) = delete;

  // Call it after the forward, once for each term. The last stage must have made the term.
  void returns(const at::Tensor& term) { reads(term); }
  // The blocks, and the weights without their state. Call it after the forward, while the tensors
  // kept for backward are alive.
  ModelBlocks finish(int64_t samples);

 private:
  struct Passage {
    std::string name;
    const c10::TensorImpl* output = nullptr;
    int64_t output_bytes = 0;
    // Events of the trace. Those of the code before the block lie between the previous end_event
    // and first_event.
    size_t first_event = 0, end_event = 0;
    int64_t forward = 0, backward = 0;  // multiply-adds so far
    std::set<size_t> weights, weights_before, buffers;
    std::string obstacle;
  };
  struct Frame;  // an open block or operator

  static std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& call);
  static void ends(const at::RecordFunction& call, at::ObserverContext* context);

  std::unique_ptr<at::ObserverContext> block_begins(const at::RecordFunction& call);
  std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& call);
  void block_ends(const at::RecordFunction& call);
  void operator_ends(const at::RecordFunction& call, const Frame& frame);
  bool is_inside() const { return depth_ > 0; }
  std::optional<size_t> weight_of(const at::Tensor& tensor) const;
  void reads(const at::Tensor& tensor);
  void needs(size_t from, const c10::TensorImpl* tensor);
  void note_writes(const at::RecordFunction& call);
  void makes(const at::Tensor& tensor);
  void casts(const at::Tensor& tensor, size_t weight);
  void close(Passage& passage);
  struct KeptBytes {
    int64_t all = 0, before = 0;  // `before`: those of `all` that code before the block keeps
  };
  std::vector<KeptBytes> kept_bytes() const;

  const TraceScope& tracing_;
  const ForwardWork& work_;
  std::vector<WeightCost> weights_;
  std::map<const c10::TensorImpl*, size_t> weight_tensors_;  // weights, and casts of them
  std::map<const c10::StorageImpl*, size_t> weight_memory_;
  std::set<size_t> cast_weights_;
  std::set<size_t> trained_weights_;        // at the start
  std::set<const c10::TensorImpl*> given_;  // parameters, buffers, fields, casts of parameters
  std::map<const c10::TensorImpl*, std::optional<size_t>> made_in_;  // no value: outside of blocks
  // The memory of buffers and fields, and the last block that wrote to it.
  std::map<const c10::StorageImpl*, std::optional<size_t>> written_in_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> addresses_;
  std::vector<Passage> passages_;
  std::set<size_t> weights_outside_;  // read since the last block
  std::vector<std::string> buffers_;
  std::map<const c10::TensorImpl*, size_t> buffer_tensors_;
  std::vector<std::pair<at::Tensor, int64_t>> buffer_versions_;  // before the forward
  std::set<size_t> buffers_outside_;
  std::vector<std::pair<size_t, std::string>> outside_reads_;  // blocks before it, and the obstacle
  int depth_ = 0;                                              // open blocks
  int operators_ = 0;                                          // open operators
  at::CallbackHandle handle_;
};

}  // namespace tanren
