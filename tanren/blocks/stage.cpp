#include "tanren/blocks/stage.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <utility>

namespace tanren {

namespace {

thread_local StageScope* stage_scope = nullptr;

// Ends the forward of a stage. Not a std::exception, so that no model catches it as an error.
struct StageLeft {};

// `whose`: "block 'a'".
ConfigError used_elsewhere(const std::string& whose) {
  return ConfigError(
      fmt::format("[pipeline] the model uses a tensor between blocks, or several blocks on: the "
                  "output of {}, which another stage computes; use it inside the next block "
                  "(run_block), or cut the model elsewhere (parallel.cut_at)",
                  whose));
}

// Stands for the output of a block that another stage computes: without shape, device and dtype.
class OutputElsewhere final : public c10::TensorImpl {
 public:
  // With the key of a device, operators start and ask for the shape, which throws.
  explicit OutputElsewhere(std::string block)
      : TensorImpl(c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta(), at::kCPU),
        block_(std::move(block)) {
    set_storage_access_should_throw();
    set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
    set_custom_device(true);
  }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& /*version*/,
                                                         bool /*allow_change*/) const override {
    refuse();
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& /*version*/,
                                                         bool /*allow_change*/) const override {
    refuse();
  }

 protected:
  bool is_strides_like_custom(at::MemoryFormat /*format*/) const override { refuse(); }
  c10::SymBool sym_is_non_overlapping_and_dense_custom() const override { refuse(); }
  c10::SymBool sym_is_contiguous_custom(at::MemoryFormat /*format*/) const override { refuse(); }
  int64_t size_custom(int64_t /*dim*/) const override { refuse(); }
  c10::SymInt sym_size_custom(int64_t /*dim*/) const override { refuse(); }
  c10::IntArrayRef sizes_custom() const override { refuse(); }
  c10::IntArrayRef strides_custom() const override { refuse(); }
  int64_t numel_custom() const override { refuse(); }
  int64_t storage_offset_custom() const override { refuse(); }
  int64_t dim_custom() const override { refuse(); }
  c10::Device device_custom() const override { refuse(); }
  c10::SymIntArrayRef sym_sizes_custom() const override { refuse(); }
  c10::SymIntArrayRef sym_strides_custom() const override { refuse(); }
  c10::SymInt sym_numel_custom() const override { refuse(); }
  c10::SymInt sym_storage_offset_custom() const override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw used_elsewhere(fmt::format("block '{}'", block_)); }
  const char* tensorimpl_type_name() const override { return "OutputElsewhere"; }

  std::string block_;
};

// Returns `leaf` under a new autograd node. The result is not a leaf, because autocast would keep a
// leaf's cast. It is not a view of a leaf either, because no operator may change such a view in
// place. It shares the memory, the version counter and all strides, while a view chooses its own
// strides for dims of size 1.
at::Tensor handed_on(const at::Tensor& leaf) {
  at::Tensor x = leaf.detach();
  if (!leaf.requires_grad() || !at::GradMode::is_enabled()) return x;
  const auto node = std::make_shared<torch::autograd::Identity>();
  node->set_next_edges(torch::autograd::collect_next_edges(leaf));
  torch::autograd::set_history(x, node);
  return x;
}

}  // namespace

StageScope::StageScope(const StageBlocks& stage, at::Tensor received)
    : stage_(stage), received_(std::move(received)), outer_(stage_scope) {
  if (stage.begin >= stage.end || stage.end > stage.blocks.size()) {
    throw Error(
        fmt::format("[pipeline] a stage with the blocks [{}, {}) of {}; give it at least "
                    "one of the model's blocks",
                    stage.begin, stage.end, stage.blocks.size()));
  }
  if (received_.defined() != (stage.begin > 0)) {
    throw Error(stage.begin > 0
                    ? "[pipeline] a later stage begins with no tensor; give it what was sent"
                    : "[pipeline] the first stage was given a tensor; it begins with the batch");
  }
  stage_scope = this;
}

StageScope::~StageScope() { stage_scope = outer_; }

bool StageScope::is_open() { return stage_scope != nullptr; }

at::Tensor StageScope::pass(std::string_view name, const std::function<at::Tensor()>& block) {
  return stage_scope->pass_next(name, block);
}

at::Tensor StageScope::pass_next(std::string_view name, const std::function<at::Tensor()>& block) {
  if (output_.defined()) throw StageLeft();  // the model caught the first one
  const size_t place = num_passed_++;
  // The blocks of the last stage are not checked, because an evaluation may use other blocks there.
  if (stage_.is_last() && place >= stage_.begin) {
    const NoStageScope inside;
    return block();
  }
  if (const std::string& expected = stage_.blocks[place]; name != expected) {
    throw ConfigError(
        fmt::format("[pipeline] the forward came to block '{}' where block {} of {}, '{}', was "
                    "expected; a model in stages must pass through the same blocks each time",
                    name, place + 1, stage_.blocks.size(), expected));
  }
  if (place < stage_.begin) {
    return place + 1 == stage_.begin ? handed_on(received_)
                                     : at::detail::make_tensor<OutputElsewhere>(std::string(name));
  }
  at::Tensor output;
  {
    const NoStageScope inside;
    output = block();
  }
  if (place + 1 < stage_.end) return output;
  if (!output.defined()) {
    throw ConfigError(fmt::format(
        "[pipeline] block '{}' is the last of its stage and returned no tensor; cut the model "
        "elsewhere (parallel.cut_at)",
        name));
  }
  output_ = std::move(output);
  throw StageLeft();
}

void StageScope::check_complete() const {
  const size_t needed = stage_.is_last() ? stage_.begin : stage_.end;
  if (output_.defined() || num_passed_ >= needed) return;
  throw ConfigError(
      fmt::format("[pipeline] the forward ended before block '{}', {} of {}; a model in stages "
                  "must pass through the same blocks each time, on the thread that called it",
                  stage_.blocks[num_passed_], num_passed_ + 1, stage_.blocks.size()));
}

NoStageScope::NoStageScope() : outer_(std::exchange(stage_scope, nullptr)) {}

NoStageScope::~NoStageScope() { stage_scope = outer_; }

StageOutput run_stage(StageScope& scope, const std::function<void()>& forward) {
  try {
    forward();
  } catch (const StageLeft&) {
  } catch (const c10::Error& error) {
    // Some operators ask for the dtype before the shape, and torch throws this error.
    const std::string_view what = error.what_without_backtrace();
    const size_t begin = scope.stage_.begin;
    const auto says = [&](const char* word) { return what.find(word) != std::string_view::npos; };
    if (begin < 2 || (!says("Undefined") && !says("UNKNOWN_SCALAR"))) throw;
    throw used_elsewhere(fmt::format("a block before '{}'", scope.stage_.blocks[begin - 1]));
  }
  scope.check_complete();
  return {scope.output_, scope.stage_.is_last()};
}

}  // namespace tanren
