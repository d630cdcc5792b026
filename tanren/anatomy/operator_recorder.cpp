#include "tanren/anatomy/operator_recorder.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/value_tensors.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/dry/multiply_adds.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// FLOPs per element, as rules of thumb: a normalisation takes mean, difference, square, scale,
// shift.
constexpr int64_t kNormaliseFlops = 5, kElementFlops = 1;

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// An expanded tensor counts no more bytes than its storage has.
int64_t bytes_of(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.numel() * tensor.element_size());
  if (!tensor.has_storage()) return bytes;
  return std::min(bytes, static_cast<int64_t>(tensor.storage().nbytes()));
}

// Facts that follow from the operator's name alone.
struct OperatorFacts {
  std::string name;
  bool composed = false;  // of other operators, which count instead
  OperatorClass of = OperatorClass::element_wise;
};

OperatorFacts facts_of(const at::RecordFunction& fn) {
  OperatorFacts facts{fn.name(), false, class_of_operator(fn.name())};
  const auto name = fn.operator_name();
  if (!name) return facts;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  facts.composed = op && op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  return facts;
}

// The running operators and nodes of this thread.
struct Open {
  int counting = 0;  // operators that count
  int nodes = 0;     // of autograd
  uint16_t node_block = 0;
};
Open& open_here() {
  thread_local Open open;
  return open;
}

enum class FrameKind { nested, counting, node };

struct Frame final : at::ObserverContext {
  FrameKind kind = FrameKind::nested;
  const OperatorFacts* facts = nullptr;
  Pass pass = Pass::forward;
  uint16_t block = 0, outer_block = 0;
  std::vector<c10::IValue> arguments;                       // of a contraction, for its FLOPs
  std::vector<std::pair<const void*, const void*>> inputs;  // tensor, storage
  int64_t input_bytes = 0, largest = 0;                     // largest: elements of one tensor
  Clock::time_point start;
};

void look_at_inputs(const at::RecordFunction& fn, Frame& frame) {
  for (const auto& input : fn.inputs()) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      const void* storage = storage_of(tensor);
      const bool seen = std::any_of(frame.inputs.begin(), frame.inputs.end(), [&](const auto& one) {
        return storage != nullptr && one.second == storage &&
               one.first == tensor.unsafeGetTensorImpl();
      });
      frame.inputs.emplace_back(tensor.unsafeGetTensorImpl(), storage);
      if (!seen) frame.input_bytes += bytes_of(tensor);
      frame.largest = std::max(frame.largest, tensor.numel());
    });
  }
  if (frame.facts->of == OperatorClass::contractions) {
    frame.arguments.assign(fn.inputs().begin(), fn.inputs().end());
  }
}

// Bytes that the operator moves; its outputs show whether it wrote at all.
int64_t bytes_moved(const at::RecordFunction& fn, Frame& frame) {
  const std::string& name = frame.facts->name;
  if (only_allocates(name)) return 0;
  // Our own operators list all tensors that they touch.
  bool wrote = name.rfind("tanren::", 0) == 0;
  int64_t written = 0;
  for (const auto& output : fn.outputs()) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      const void* storage = storage_of(tensor);
      bool same = false, alias = false;
      for (const auto& [impl, of] : frame.inputs) {
        same = same || impl == tensor.unsafeGetTensorImpl();
        alias = alias || (of != nullptr && of == storage);
      }
      frame.largest = std::max(frame.largest, tensor.numel());
      if (alias && !(same && name.back() == '_')) return;  // a view
      wrote = true;
      written += bytes_of(tensor);
    });
  }
  if (!wrote) return 0;
  return gathers(name) ? 2 * written : frame.input_bytes + written;
}

int64_t flops_of(const at::RecordFunction& fn, const Frame& frame) {
  const OperatorClass of = frame.facts->of;
  if (of == OperatorClass::data_movement) return 0;
  if (of == OperatorClass::element_wise) return kElementFlops * frame.largest;
  if (of == OperatorClass::normalisations) return kNormaliseFlops * frame.largest;
  std::vector<at::Tensor> results;
  for (const auto& output : fn.outputs()) {
    for_each_tensor(output, [&](const at::Tensor& tensor) { results.push_back(tensor); });
  }
  std::string_view name = frame.facts->name;
  if (name.rfind("aten::", 0) == 0) name.remove_prefix(6);
  try {
    return 2 * multiply_adds(name, frame.arguments, results).value_or(0);
  } catch (const std::exception&) {
    return 0;  // an overload with other arguments
  }
}

}  // namespace

struct OperatorRecorder::Impl {
  using Key = std::tuple<const OperatorFacts*, Pass>;

  Impl(Detail with, std::function<void()> wait, Hooks told)
      : detail(with), finish(std::move(wait)), hooks(std::move(told)) {}

  static std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& fn);
  static void after(const at::RecordFunction& fn, at::ObserverContext* context);

  std::unique_ptr<Frame> begin_node(const at::RecordFunction& fn);
  std::unique_ptr<Frame> begin_operator(const at::RecordFunction& fn);
  void end_node(const at::RecordFunction& fn, const Frame& frame);
  void end_operator(const at::RecordFunction& fn, Frame& frame);
  const OperatorFacts& facts(const at::RecordFunction& fn);
  Clock::time_point now() const {
    if (finish) finish();
    return Clock::now();
  }
  void close_backward();

  Detail detail;
  std::function<void()> finish;
  Hooks hooks;
  at::CallbackHandle handle = 0;
  bool recording = false, in_forward = false;
  const BlockTrail* trail = nullptr;  // of the step's thread
  Clock::time_point step_start, forward_start, forward_end;
  std::optional<Clock::time_point> backward_end;

  std::mutex mutex;  // autograd has threads of its own on accelerators
  std::unordered_map<std::string, std::unique_ptr<OperatorFacts>> known;
  std::map<Key, OperatorTotal> operators;
  std::vector<BlockTotal> blocks;
  std::map<std::string, NodeTotal> nodes;
  PassTimes times;
};

namespace {

// Callbacks are plain functions that can reach only static storage.
std::atomic<void*> listening{nullptr};

}  // namespace

const OperatorFacts& OperatorRecorder::Impl::facts(const at::RecordFunction& fn) {
  std::string key = fn.name();
  if (const auto name = fn.operator_name()) key += "." + name->overload_name;
  const std::lock_guard lock(mutex);
  auto& entry = known[key];
  if (!entry) entry = std::make_unique<OperatorFacts>(facts_of(fn));
  return *entry;
}

std::unique_ptr<at::ObserverContext> OperatorRecorder::Impl::before(const at::RecordFunction& fn) {
  auto* impl = static_cast<Impl*>(listening.load());
  if (impl == nullptr || !impl->recording) return nullptr;
  if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) return impl->begin_node(fn);
  return impl->begin_operator(fn);
}

void OperatorRecorder::Impl::after(const at::RecordFunction& fn, at::ObserverContext* context) {
  auto* impl = static_cast<Impl*>(listening.load());
  if (impl == nullptr || context == nullptr) return;
  auto& frame = static_cast<Frame&>(*context);
  if (frame.kind == FrameKind::node) {
    impl->end_node(fn, frame);
  } else {
    impl->end_operator(fn, frame);
  }
}

std::unique_ptr<Frame> OperatorRecorder::Impl::begin_node(const at::RecordFunction& fn) {
  auto frame = std::make_unique<Frame>();
  frame->kind = FrameKind::node;
  Open& open = open_here();
  ++open.nodes;
  frame->outer_block = open.node_block;
  if (trail != nullptr && fn.seqNr() >= 0) {
    open.node_block = trail->block_of(static_cast<uint64_t>(fn.seqNr()));
  }
  frame->start = Clock::now();
  return frame;
}

std::unique_ptr<Frame> OperatorRecorder::Impl::begin_operator(const at::RecordFunction& fn) {
  Open& open = open_here();
  const bool backward = open.nodes > 0;
  if (!backward && !in_forward) return nullptr;  // the update's
  if (open.counting > 0) return nullptr;
  const OperatorFacts& known_facts = facts(fn);
  if (known_facts.composed) return nullptr;
  auto frame = std::make_unique<Frame>();
  frame->kind = FrameKind::counting;
  frame->facts = &known_facts;
  frame->pass = backward ? Pass::backward : Pass::forward;
  const uint16_t tagged = memory_tag().block;  // in backward: inside a recomputed block
  frame->block = tagged != 0 ? tagged : backward ? open.node_block : uint16_t{0};
  look_at_inputs(fn, *frame);
  ++open.counting;
  frame->start = now();
  return frame;
}

void OperatorRecorder::Impl::end_node(const at::RecordFunction& fn, const Frame& frame) {
  const auto end = now();
  Open& open = open_here();
  --open.nodes;
  open.node_block = frame.outer_block;
  const std::lock_guard lock(mutex);
  backward_end = end;
  if (hooks.after_node) hooks.after_node();
  if (detail == Detail::passes) return;
  NodeTotal& total = nodes[fn.name()];
  ++total.calls;
  total.seconds += seconds_between(frame.start, end);
}

void OperatorRecorder::Impl::end_operator(const at::RecordFunction& fn, Frame& frame) {
  const double seconds = seconds_between(frame.start, now());
  --open_here().counting;
  // An exception ended the operator before it computed anything. A recomputed block ends this way
  // (blocks/recompute.h).
  if (fn.num_outputs() > 0 && fn.outputs().empty()) return;
  const int64_t bytes = bytes_moved(fn, frame);
  const int64_t flops = flops_of(fn, frame);
  const std::string block = block_name(frame.block);
  const std::lock_guard lock(mutex);
  OperatorTotal& total = operators[{frame.facts, frame.pass}];
  total.name = frame.facts->name;
  total.of = frame.facts->of;
  total.pass = frame.pass;
  ++total.calls;
  total.seconds += seconds;
  total.flops += flops;
  total.bytes += bytes;
  auto found = std::find_if(blocks.begin(), blocks.end(),
                            [&](const BlockTotal& one) { return one.name == block; });
  if (found == blocks.end()) found = blocks.insert(blocks.end(), BlockTotal{block});
  const bool forward = frame.pass == Pass::forward;
  (forward ? found->forward_seconds : found->backward_seconds) += seconds;
  (forward ? found->forward_flops : found->backward_flops) += flops;
}

void OperatorRecorder::Impl::close_backward() {
  if (!backward_end) return;
  times.backward += seconds_between(forward_end, *backward_end);
  backward_end.reset();
}

OperatorRecorder::OperatorRecorder(Detail detail, std::function<void()> finish, Hooks hooks)
    : impl_(std::make_unique<Impl>(detail, std::move(finish), std::move(hooks))) {
  void* none = nullptr;
  if (!listening.compare_exchange_strong(none, impl_.get())) {
    throw Error("[anatomy] two recordings at once; end the first one before");
  }
  const bool all = detail == Detail::operators;
  auto callback = at::RecordFunctionCallback(&Impl::before, &Impl::after);
  callback.needsInputs(all).needsOutputs(all);
  if (all) {
    callback.scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
  } else {
    callback.scopes({at::RecordScope::BACKWARD_FUNCTION});
  }
  impl_->handle = at::addThreadLocalCallback(callback);
}

OperatorRecorder::~OperatorRecorder() {
  at::removeCallback(impl_->handle);
  listening = nullptr;
}

void OperatorRecorder::begin_step() {
  impl_->trail = &block_trail();
  impl_->in_forward = false;
  impl_->backward_end.reset();
  impl_->step_start = impl_->now();
  impl_->recording = true;
}

void OperatorRecorder::begin_forward() {
  impl_->close_backward();
  if (impl_->hooks.begin_forward) impl_->hooks.begin_forward();
  impl_->in_forward = true;
  impl_->forward_start = impl_->now();
}

void OperatorRecorder::end_forward() {
  impl_->forward_end = impl_->now();
  impl_->in_forward = false;
  if (impl_->hooks.end_forward) impl_->hooks.end_forward();
  impl_->times.forward += seconds_between(impl_->forward_start, impl_->forward_end);
}

void OperatorRecorder::end_step() {
  const auto end = impl_->now();
  impl_->recording = false;
  impl_->close_backward();
  PassTimes& times = impl_->times;
  ++times.steps;
  // Sums whole steps here. recording() subtracts the sums of forward and backward.
  times.update += seconds_between(impl_->step_start, end);
}

OperatorRecording OperatorRecorder::recording() const {
  const std::lock_guard lock(impl_->mutex);
  OperatorRecording result{impl_->times, {}, {}, {}};
  result.times.update -= result.times.forward + result.times.backward;
  // Overloads of one name are one operator.
  std::map<std::pair<std::string, Pass>, OperatorTotal> merged;
  for (const auto& [key, total] : impl_->operators) {
    OperatorTotal& sum = merged[{total.name, total.pass}];
    const OperatorTotal before = sum;
    sum = total;
    sum.calls += before.calls;
    sum.seconds += before.seconds;
    sum.flops += before.flops;
    sum.bytes += before.bytes;
  }
  for (const auto& [key, total] : merged) result.operators.push_back(total);
  result.blocks = impl_->blocks;
  for (const auto& [node, total] : impl_->nodes) {
    result.nodes.push_back({node, total.calls, total.seconds});
  }
  const auto slower = [](const auto& a, const auto& b) { return a.seconds > b.seconds; };
  std::sort(result.operators.begin(), result.operators.end(), slower);
  std::sort(result.nodes.begin(), result.nodes.end(), slower);
  return result;
}

}  // namespace tanren
