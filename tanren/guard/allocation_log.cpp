#include "tanren/guard/allocation_log.h"

#include "tanren/base/value_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <set>

namespace tanren {

namespace {

// torch's callbacks are plain functions; they find the log that records here.
std::atomic<AllocationLog*> recording{nullptr};

std::vector<std::string>& open_blocks() {
  thread_local std::vector<std::string> blocks;
  return blocks;
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// The storages of an operator's inputs. An output that shares one of them is not a new allocation.
struct Inputs final : at::ObserverContext {
  std::vector<c10::StorageImpl*> storages;
};

}  // namespace

struct AllocationLog::Observer {
  static std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& fn) {
    if (fn.scope() == at::RecordScope::USER_SCOPE) {
      open_blocks().emplace_back(fn.name());
      return nullptr;
    }
    auto inputs = std::make_unique<Inputs>();
    for (const auto& input : fn.inputs()) {
      for_each_tensor(
          input, [&](const at::Tensor& tensor) { inputs->storages.push_back(storage_of(tensor)); });
    }
    return inputs;
  }

  static void after(const at::RecordFunction& fn, at::ObserverContext* context) {
    if (fn.scope() == at::RecordScope::USER_SCOPE) {
      if (!open_blocks().empty()) open_blocks().pop_back();
      return;
    }
    AllocationLog* log = recording.load();
    if (log == nullptr || context == nullptr) return;
    const auto& inputs = static_cast<Inputs*>(context)->storages;
    for (const auto& output : fn.outputs()) {
      for_each_tensor(output, [&](const at::Tensor& tensor) { log->add(fn, inputs, tensor); });
    }
  }
};

AllocationLog::AllocationLog() {
  AllocationLog* none = nullptr;
  if (!recording.compare_exchange_strong(none, this)) return;
  handle_ =
      at::addGlobalCallback(at::RecordFunctionCallback(&Observer::before, &Observer::after)
                                .needsInputs(true)
                                .needsOutputs(true)
                                .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

AllocationLog::~AllocationLog() { stop(); }

void AllocationLog::next_step() {
  const std::lock_guard lock(mutex_);
  ++step_;
}

void AllocationLog::stop() {
  if (!handle_) return;
  at::removeCallback(*handle_);
  handle_.reset();
  recording = nullptr;
}

void AllocationLog::add(const at::RecordFunction& fn, const std::vector<c10::StorageImpl*>& inputs,
                        const at::Tensor& tensor) {
  // Not tensor.grad_fn(): that may make a node, which runs operators.
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  const auto node = meta == nullptr ? nullptr : meta->grad_fn_;
  auto* storage = storage_of(tensor);
  const bool is_new =
      storage != nullptr && std::find(inputs.begin(), inputs.end(), storage) == inputs.end();
  if (!node && !is_new) return;
  std::string made_by = fn.name();
  if (!open_blocks().empty()) made_by += " in block " + open_blocks().back();
  const std::lock_guard lock(mutex_);
  log_.push_back(
      {step_, std::move(made_by), node,
       is_new ? tensor.storage().getWeakStorageImpl()
              : c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>())});
}

Survivors AllocationLog::survivors(int64_t step) const {
  const std::lock_guard lock(mutex_);
  Survivors alive;
  std::set<const torch::autograd::Node*> nodes, needed;
  std::set<const c10::StorageImpl*> storages;
  size_t largest = 0;
  const auto is_of_step = [&](const Allocation& allocation) { return allocation.step == step; };
  for (const auto& allocation : log_) {
    if (!is_of_step(allocation)) continue;
    if (const auto node = allocation.node.lock(); node && nodes.insert(node.get()).second) {
      for (const auto& edge : node->next_edges()) needed.insert(edge.function.get());
    }
    // When operators call each other, the innermost one ends first: it is logged first and is
    // named.
    const auto storage = allocation.storage.lock();
    if (storage && storages.insert(storage.get()).second) {
      alive.bytes += static_cast<int64_t>(storage->nbytes());
      if (storage->nbytes() > largest || largest == 0) alive.largest_tensor = allocation.made_by;
      largest = std::max(largest, storage->nbytes());
    }
  }
  alive.nodes = static_cast<int64_t>(nodes.size());
  alive.tensors = static_cast<int64_t>(storages.size());
  for (const auto& allocation : log_) {
    const auto node = is_of_step(allocation) ? allocation.node.lock() : nullptr;
    if (!node || needed.count(node.get()) > 0) continue;
    alive.last_node = node->name();
    alive.last_operator = allocation.made_by;
  }
  return alive;
}

}  // namespace tanren
