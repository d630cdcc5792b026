#include "tanren/guard/births.h"

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

// torch's callbacks are plain functions: the one that records is found here.
std::atomic<Births*> recording{nullptr};

std::vector<std::string>& open_blocks() {
  thread_local std::vector<std::string> blocks;
  return blocks;
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// Storages that go into an operator: what comes out with one of them was not made by it.
struct Inputs final : at::ObserverContext {
  std::vector<c10::StorageImpl*> storages;
};

}  // namespace

struct Births::Observer {
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
    Births* births = recording.load();
    if (births == nullptr || context == nullptr) return;
    const auto& inputs = static_cast<Inputs*>(context)->storages;
    for (const auto& output : fn.outputs()) {
      for_each_tensor(output, [&](const at::Tensor& tensor) { births->add(fn, inputs, tensor); });
    }
  }
};

Births::Births() {
  Births* none = nullptr;
  if (!recording.compare_exchange_strong(none, this)) return;
  handle_ =
      at::addGlobalCallback(at::RecordFunctionCallback(&Observer::before, &Observer::after)
                                .needsInputs(true)
                                .needsOutputs(true)
                                .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

Births::~Births() { stop(); }

void Births::next_step() {
  const std::lock_guard lock(mutex_);
  ++step_;
}

void Births::stop() {
  if (!handle_) return;
  at::removeCallback(*handle_);
  handle_.reset();
  recording = nullptr;
}

void Births::add(const at::RecordFunction& fn, const std::vector<c10::StorageImpl*>& inputs,
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
  births_.push_back(
      {step_, std::move(made_by), node,
       is_new ? tensor.storage().getWeakStorageImpl()
              : c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>())});
}

Survivors Births::survivors(int64_t step) const {
  const std::lock_guard lock(mutex_);
  Survivors alive;
  std::set<const torch::autograd::Node*> nodes, needed;
  std::set<const c10::StorageImpl*> storages;
  size_t largest = 0;
  const auto is_of_step = [&](const Birth& birth) { return birth.step == step; };
  for (const auto& birth : births_) {
    if (!is_of_step(birth)) continue;
    if (const auto node = birth.node.lock(); node && nodes.insert(node.get()).second) {
      for (const auto& edge : node->next_edges()) needed.insert(edge.function.get());
    }
    // The innermost operator that made a storage ends first, and is the one that is named.
    const auto storage = birth.storage.lock();
    if (storage && storages.insert(storage.get()).second) {
      alive.bytes += static_cast<int64_t>(storage->nbytes());
      if (storage->nbytes() > largest || largest == 0) alive.largest_tensor = birth.made_by;
      largest = std::max(largest, storage->nbytes());
    }
  }
  alive.nodes = static_cast<int64_t>(nodes.size());
  alive.tensors = static_cast<int64_t>(storages.size());
  for (const auto& birth : births_) {
    const auto node = is_of_step(birth) ? birth.node.lock() : nullptr;
    if (!node || needed.count(node.get()) > 0) continue;
    alive.last_node = node->name();
    alive.last_operator = birth.made_by;
  }
  return alive;
}

}  // namespace tanren
