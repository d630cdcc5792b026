// Stages: a model cut between its outermost blocks, so that several devices can each hold a part. A
// StageScope makes one forward run only the blocks of one stage: run_block (block.h) skips the
// blocks before it, and run_stage leaves the forward after the stage's last block. Models need no
// change. Invariant: outputs and gradients are bitwise those of the whole model, apart from the
// gradient of a parameter that several stages use: each stage adds its part. Called by the code
// that runs a pipeline.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct StageBlocks {
  // All blocks of the model in the order in which a forward passes through them. A block inside
  // another is part of it and not listed. A name may occur several times: places count.
  std::vector<std::string> blocks;
  size_t begin = 0, end = 0;  // the stage has blocks[begin, end)

  bool is_last() const { return end == blocks.size(); }
};

struct StageOutput {
  at::Tensor output;  // of the stage's last block, with its graph; undefined: the forward returned
  bool is_last = false;  // the forward returned, with what the whole model returns
};

class StageScope {
 public:
  // For this thread's blocks. `stage` must outlive the scope. `received` is the tensor that the
  // previous stage sent: a leaf, undefined on the first stage. If it requires a gradient, backward
  // leaves it in received.grad(). The stage's first block gets the same memory and strides and may
  // change it in place. Error if `stage` is empty or beyond the blocks, or `received` does not fit
  // it.
  StageScope(const StageBlocks& stage, at::Tensor received);
  ~StageScope();
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

  // Whether this thread is in a scope, outside of all blocks.
  static bool is_open();
  // Called by run_block if a scope is open: runs `block`, or skips it. The last skipped block
  // returns what was received. The others return a tensor that throws a ConfigError with the
  // block's name when it is used. An undefined tensor would be mistaken for an empty one.
  static at::Tensor pass(std::string_view name, const std::function<at::Tensor()>& block);

 private:
  friend class NoStageScope;
  friend StageOutput run_stage(StageScope& scope, const std::function<void()>& forward);

  at::Tensor pass_next(std::string_view name, const std::function<at::Tensor()>& block);
  void check_complete() const;

  const StageBlocks& stage_;
  at::Tensor received_;
  size_t num_passed_ = 0;  // blocks that the forward has come to
  at::Tensor output_;      // set once the forward may be left
  StageScope* outer_;
};

// While it lives, this thread's blocks belong to no stage: those inside a block, and those that a
// recomputed block runs again.
class NoStageScope {
 public:
  NoStageScope();
  ~NoStageScope();
  NoStageScope(const NoStageScope&) = delete;
  NoStageScope& operator=(const NoStageScope&) = delete;

 private:
  StageScope* outer_;
};

// Calls `forward` once within `scope`, which must be the innermost scope. To run the backward of a
// stage that is not the last, call backward({output}, {received.grad() of the next stage}).
// ConfigError if the forward passes through other blocks than StageBlocks names, or uses the output
// of a skipped block.
StageOutput run_stage(StageScope& scope, const std::function<void()>& forward);

}  // namespace tanren
