#include "tanren/forecast/block_watch.h"

#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/base/value_tensors.h"
#include "tanren/blocks/block_trail.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace tanren {

namespace {

// A listener is a plain function, which can reach only static storage.
thread_local BlockWatch* block_watch = nullptr;

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

int64_t version_of(const at::Tensor& tensor) { return tensor.defined() ? tensor._version() : 0; }

int64_t rounded_up(int64_t bytes, int64_t samples) { return (bytes + samples - 1) / samples; }

// Forbids cuts between blocks that share this buffer, because each stage would change its own copy.
void keep_together(size_t buffer, ModelBlocks& model) {
  std::vector<BlockCost>& blocks = model.blocks;
  const auto reads = [&](const BlockCost& block) {
    return std::find(block.buffers.begin(), block.buffers.end(), buffer) != block.buffers.end();
  };
  const auto first = std::find_if(blocks.begin(), blocks.end(), reads);
  if (first == blocks.end()) return;
  const auto last = std::find_if(blocks.rbegin(), blocks.rend(), reads).base() - 1;
  for (auto block = first; block != last; ++block) {
    if (!block->obstacle.empty()) continue;
    block->obstacle = fmt::format("blocks '{}' and '{}' share the buffer {}, which they change",
                                  first->name, last->name, model.buffers[buffer]);
  }
}

// A user's profiler scope looks like a block, but its name is not that of the current block.
bool is_block(const at::RecordFunction& call) {
  return call.scope() == at::RecordScope::USER_SCOPE &&
         block_name(memory_tag().block) == call.name();
}

}  // namespace

struct BlockWatch::Frame final : at::ObserverContext {
  bool is_block = false;
  // An operator that casts this weight.
  std::optional<size_t> cast_of;
  const c10::TensorImpl* cast_from = nullptr;
};

BlockWatch::BlockWatch(const torch::nn::Module& module, const Batch& batch,
                       const TraceScope& tracing, const ForwardWork& work)
    : tracing_(tracing), work_(work) {
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!given_.insert(tensor.unsafeGetTensorImpl()).second) continue;  // shared by two modules
    weight_tensors_[tensor.unsafeGetTensorImpl()] = weights_.size();
    weight_memory_.emplace(memory_of(tensor), weights_.size());
    if (tensor.requires_grad()) trained_weights_.insert(weights_.size());
    weights_.push_back({item.key(), static_cast<int64_t>(tensor.nbytes())});
  }
  for (const auto& item : module.named_buffers()) {
    if (!given_.insert(item.value().unsafeGetTensorImpl()).second) continue;
    buffer_tensors_[item.value().unsafeGetTensorImpl()] = buffers_.size();
    buffers_.push_back(item.key());
    buffer_versions_.emplace_back(item.value(), version_of(item.value()));
  }
  for (const auto& [name, field] : batch.fields) given_.insert(field.unsafeGetTensorImpl());
  given_.insert(batch.ids.unsafeGetTensorImpl());
  for (const auto& buffer : module.buffers()) written_in_[memory_of(buffer)];
  for (const auto& [name, field] : batch.fields) written_in_[memory_of(field)];
  weight_memory_.erase(nullptr);
  written_in_.erase(nullptr);
  block_watch = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&begins, &ends)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

BlockWatch::~BlockWatch() {
  at::removeCallback(handle_);
  block_watch = nullptr;
}

std::unique_ptr<at::ObserverContext> BlockWatch::begins(const at::RecordFunction& call) {
  if (block_watch == nullptr) return nullptr;
  if (call.scope() == at::RecordScope::FUNCTION) return block_watch->operator_begins(call);
  return is_block(call) ? block_watch->block_begins(call) : nullptr;
}

void BlockWatch::ends(const at::RecordFunction& call, at::ObserverContext* context) {
  if (block_watch == nullptr || context == nullptr) return;
  const auto& frame = static_cast<const Frame&>(*context);
  if (frame.is_block) return block_watch->block_ends(call);
  block_watch->operator_ends(call, frame);
}

std::unique_ptr<at::ObserverContext> BlockWatch::block_begins(const at::RecordFunction& call) {
  if (depth_++ == 0) {
    passages_.emplace_back();
    passages_.back().name = call.name();
    passages_.back().first_event = tracing_.size();
    passages_.back().weights = std::exchange(weights_outside_, {});
    passages_.back().weights_before = passages_.back().weights;
  }
  auto frame = std::make_unique<Frame>();
  frame->is_block = true;
  return frame;
}

void BlockWatch::block_ends(const at::RecordFunction& call) {
  if (--depth_ > 0) return;
  Passage& passage = passages_.back();
  close(passage);
  if (call.outputs().empty() || !call.outputs()[0].isTensor()) return;
  const at::Tensor& output = call.outputs()[0].toTensor();
  if (!output.defined()) return;
  passage.output = output.unsafeGetTensorImpl();
  passage.output_bytes = output.numel() * static_cast<int64_t>(output.element_size());
  if (given_.count(passage.output) > 0 || made_in_.count(passage.output) > 0) return;
  made_in_[passage.output] = passages_.size() - 1;  // by a kernel without a record
  addresses_.emplace_back(output.getIntrusivePtr());
}

// Sets the block's end. Its counts are cumulative: finish() subtracts those of the blocks before
// it.
void BlockWatch::close(Passage& passage) {
  passage.forward = 0;
  for (const auto& [block, count] : work_.multiply_adds) passage.forward += count;
  passage.backward = work_.backward_multiply_adds;
  passage.end_event = tracing_.size();
}

std::unique_ptr<at::ObserverContext> BlockWatch::operator_begins(const at::RecordFunction& call) {
  auto frame = std::make_unique<Frame>();
  const bool is_outermost = operators_++ == 0;
  const std::string_view name = call.name();
  const bool is_cast = name == "aten::to" || name == "aten::_to_copy";
  for (const c10::IValue& input : call.inputs()) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      const auto weight = weight_of(tensor);
      if (weight) (is_inside() ? passages_.back().weights : weights_outside_).insert(*weight);
      const auto buffer = buffer_tensors_.find(tensor.unsafeGetTensorImpl());
      if (buffer != buffer_tensors_.end()) {
        (is_inside() ? passages_.back().buffers : buffers_outside_).insert(buffer->second);
      }
      if (is_cast && weight) {
        frame->cast_of = weight;
        frame->cast_from = tensor.unsafeGetTensorImpl();
      }
      // Inner operators are ignored, because they read internal tensors such as autocast's copies
      // of weights.
      if (is_outermost) reads(tensor);
    });
  }
  note_writes(call);
  return frame;
}

void BlockWatch::operator_ends(const at::RecordFunction& call, const Frame& frame) {
  --operators_;
  for (const c10::IValue& result : call.outputs()) {
    for_each_tensor(result, [&](const at::Tensor& tensor) {
      const bool is_cast = frame.cast_of && tensor.unsafeGetTensorImpl() != frame.cast_from;
      is_cast ? casts(tensor, *frame.cast_of) : makes(tensor);
    });
  }
}

std::optional<size_t> BlockWatch::weight_of(const at::Tensor& tensor) const {
  const auto found = weight_tensors_.find(tensor.unsafeGetTensorImpl());
  if (found != weight_tensors_.end()) return found->second;
  const auto memory = weight_memory_.find(memory_of(tensor));
  return memory == weight_memory_.end() ? std::nullopt : std::optional(memory->second);
}

void BlockWatch::reads(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto made = made_in_.find(impl);
  if (made != made_in_.end() && made->second) needs(*made->second, impl);
  const auto written = written_in_.find(memory_of(tensor));
  if (written != written_in_.end() && written->second) needs(*written->second, nullptr);
}

// Records writes to buffers and fields. They exist in every stage, but only the stage of the block
// that writes has the new values.
void BlockWatch::note_writes(const at::RecordFunction& call) {
  const auto schema = is_inside() ? call.operator_schema() : std::nullopt;
  if (!schema || !schema->is_mutable()) return;
  const auto& arguments = schema->arguments();
  const auto inputs = call.inputs();
  for (size_t i = 0; i < std::min(arguments.size(), inputs.size()); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      const auto written = written_in_.find(memory_of(tensor));
      if (written != written_in_.end()) written->second = passages_.size() - 1;
    });
  }
}

// The running code reads data of block `from`. `tensor` is the tensor that a cut would have to
// send; null if a cut cannot send the data.
void BlockWatch::needs(size_t from, const c10::TensorImpl* tensor) {
  const size_t ended = passages_.size() - (is_inside() ? 1 : 0);
  const std::string obstacle =
      is_inside() ? fmt::format("block '{}' also needs a tensor of block '{}'",
                                passages_.back().name, passages_[from].name)
                  : fmt::format("the code after block '{}' computes with a tensor of block '{}'",
                                passages_.back().name, passages_[from].name);
  for (size_t block = from; block < ended; ++block) {
    Passage& cut = passages_[block];
    const bool is_sent = tensor != nullptr && cut.output == tensor;
    if (!is_sent && cut.obstacle.empty()) cut.obstacle = obstacle;
  }
  // Stages after this code run it too, and there the tensor is undefined.
  if (!is_inside()) outside_reads_.emplace_back(ended, obstacle);
}

void BlockWatch::makes(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (given_.count(impl) > 0) return;
  const auto place = is_inside() ? std::optional(passages_.size() - 1) : std::nullopt;
  // The weak pointer keeps the address from being used again, not the tensor's memory.
  if (made_in_.insert_or_assign(impl, place).second) {
    addresses_.emplace_back(tensor.getIntrusivePtr());
  }
}

// Autocast keeps a weight's cast for the window and hands it to any block that reads the weight.
void BlockWatch::casts(const at::Tensor& tensor, size_t weight) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!given_.insert(impl).second) return;
  const bool is_kept = trained_weights_.count(weight) > 0;  // as autocast keeps them
  if (cast_weights_.insert(weight).second && is_kept) {
    weights_[weight].bytes += static_cast<int64_t>(tensor.nbytes());
  }
  weight_tensors_[impl] = weight;
  made_in_.erase(impl);
  addresses_.emplace_back(tensor.getIntrusivePtr());
}

// Bytes per block of the tensors that its forward, or the code before it, made and that are still
// alive.
std::vector<BlockWatch::KeptBytes> BlockWatch::kept_bytes() const {
  const MemoryTrace trace = tracing_.trace();
  std::unordered_map<uint32_t, size_t> made;  // event of each tensor that is alive
  for (size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].bytes < 0) {
      made.erase(trace[i].tensor);
    } else {
      made[trace[i].tensor] = i;
    }
  }
  std::vector<KeptBytes> kept(passages_.size());
  for (const auto& [tensor, event] : made) {
    if (trace[event].kind != MemoryKind::activations) continue;
    size_t block = 0;
    while (block + 1 < passages_.size() && event >= passages_[block].end_event) ++block;
    kept[block].all += trace[event].bytes;
    if (event < passages_[block].first_event) kept[block].before += trace[event].bytes;
  }
  return kept;
}

ModelBlocks BlockWatch::finish(int64_t samples) {
  ModelBlocks model{.blocks = {},
                    .weights = weights_,
                    .buffers = buffers_,
                    .buffers_outside = {buffers_outside_.begin(), buffers_outside_.end()}};
  for (size_t i = 0; i < buffers_.size(); ++i) {
    // A norm changes its statistics behind the version counter.
    const bool is_statistic =
        buffers_[i].ends_with("running_mean") || buffers_[i].ends_with("running_var");
    const auto& [buffer, version] = buffer_versions_[i];
    if (is_statistic || version_of(buffer) != version) model.buffers_written.push_back(i);
  }
  if (passages_.empty()) return model;
  passages_.back().weights.merge(weights_outside_);
  close(passages_.back());
  for (const auto& [first, obstacle] : outside_reads_) {
    for (size_t block = first; block < passages_.size(); ++block) {
      if (passages_[block].obstacle.empty()) passages_[block].obstacle = obstacle;
    }
  }
  passages_.back().obstacle.clear();  // nothing comes after it
  const std::vector<KeptBytes> kept = kept_bytes();
  const auto share = [&](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(samples);
  };
  int64_t forward = 0, backward = 0;
  for (size_t i = 0; i < passages_.size(); ++i) {
    const Passage& passage = passages_[i];
    model.blocks.push_back(
        {.name = passage.name,
         .forward = share(passage.forward - forward),
         .backward = share(passage.backward - backward),
         .kept_bytes = rounded_up(kept[i].all, samples),
         .kept_before = rounded_up(kept[i].before, samples),
         .output_bytes = rounded_up(passage.output_bytes, samples),
         .obstacle = passage.obstacle,
         .weights = {passage.weights.begin(), passage.weights.end()},
         .weights_before = {passage.weights_before.begin(), passage.weights_before.end()},
         .buffers = {passage.buffers.begin(), passage.buffers.end()}});
    forward = passage.forward;
    backward = passage.backward;
  }
  for (const size_t buffer : model.buffers_written) keep_together(buffer, model);
  return model;
}

}  // namespace tanren
