#include "tanren/memory/attempt.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/memory/device_retry.h"
#include "tanren/memory/gauge.h"

#include <torch/csrc/autograd/function.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <execinfo.h>

namespace tanren {

namespace {

// Messages of allocators, cuBLAS and oneDNN. NOT_INITIALIZED: a handle's workspace found no room.
constexpr std::array<std::string_view, 9> kWords = {"out of memory",
                                                    "can't allocate memory",
                                                    "CUBLAS_STATUS_ALLOC_FAILED",
                                                    "CUBLAS_STATUS_NOT_INITIALIZED",
                                                    "CUDNN_STATUS_NOT_INITIALIZED",
                                                    "CUFFT_ALLOC_FAILED",
                                                    "CUDNN_STATUS_ALLOC_FAILED",
                                                    "std::bad_alloc",
                                                    "could not create a memory"};

// The operator's name in a mangled symbol: "addmm" in "_ZN2at4_ops5addmm4callE…". Empty for all
// other symbols.
std::string_view operator_of(std::string_view symbol) {
  constexpr std::string_view kPrefix = "_ZN2at4_ops";
  if (symbol.substr(0, kPrefix.size()) != kPrefix) return "";
  symbol.remove_prefix(kPrefix.size());
  size_t length = 0;
  while (!symbol.empty() && symbol[0] >= '0' && symbol[0] <= '9') {
    length = length * 10 + static_cast<size_t>(symbol[0] - '0');
    symbol.remove_prefix(1);
  }
  return symbol.substr(0, length);
}

// The operator of torch whose function contains `address`, or empty. dladdr searches all symbols of
// libtorch, so each thread caches the results. The cache is a static table, because there may be no
// memory to allocate. The names are part of libtorch, which stays loaded.
std::string_view operator_at(void* address) {
  struct Entry {
    void* address = nullptr;
    std::string_view name;
  };
  thread_local std::array<Entry, 512> table{};
  const auto number = reinterpret_cast<uintptr_t>(address);
  Entry& entry = table[(number ^ (number >> 9)) % table.size()];
  if (entry.address != address) {
    Dl_info info{};
    const bool named = ::dladdr(address, &info) != 0 && info.dli_sname != nullptr;
    entry = {address, named ? operator_of(info.dli_sname) : ""};
  }
  return entry.name;
}

// The operator at which the program ran out of memory, taken from the call stack: the innermost one
// that does more than create a tensor.
std::string operator_at_work() {
  std::array<void*, 96> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  std::string result;
  for (int i = 0; i < count; ++i) {
    std::string_view found = operator_at(frames[static_cast<size_t>(i)]);
    if (found.empty()) continue;
    // "add_Tensor" is add with the overload Tensor.
    const size_t overload = found.rfind('_');
    if (overload != std::string::npos && overload + 1 < found.size() &&
        std::isupper(static_cast<unsigned char>(found[overload + 1])) != 0) {
      found = found.substr(0, overload);
    }
    result = found;
    const bool only_makes = found.rfind("empty", 0) == 0 || found.rfind("resize", 0) == 0 ||
                            found.rfind("new_empty", 0) == 0 || found == "set_";
    if (!only_makes) break;
  }
  return result;
}

Shortage& noted() {
  thread_local Shortage shortage;
  return shortage;
}

}  // namespace

void note_shortage(int64_t bytes) {
  Shortage& shortage = noted();
  shortage = {};
  shortage.bytes = bytes;
  shortage.operation = operator_at_work();
  shortage.owners = MemoryGauge(at::kCPU).owners();
  uint16_t block = memory_tag().block;
  if (const auto node = torch::autograd::get_current_node()) {
    shortage.in_backward = true;
    if (block == 0) block = block_trail().block_of(node->sequence_nr());
    if (shortage.operation.empty()) shortage.operation = node->name();
  }
  shortage.block = block_name(block);
}

Shortage take_shortage() { return std::exchange(noted(), Shortage{}); }

void throw_memory_error(const c10::OutOfMemoryError& error, const std::string& advice) {
  const std::string line = first_line(error.what_without_backtrace());
  throw MemoryError(line.substr(0, line.rfind(';')) + "; " + advice);
}

bool says_out_of_memory(const std::string& message) {
  for (const auto words : kWords) {
    if (message.find(words) != std::string::npos) return true;
  }
  return false;
}

std::optional<Shortage> attempt(const std::function<void()>& work) {
  take_shortage();
  std::string message;
  const MayRunOutScope may_run_out;
  const NoDeviceRetryScope no_retry;
  try {
    work();
    return std::nullopt;
  } catch (const c10::OutOfMemoryError& error) {
    message = first_line(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    message = "std::bad_alloc";
  } catch (const CommError&) {
    throw;  // even if it names memory: another rank ran out
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    message =
        first_line(torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
    if (!says_out_of_memory(message)) throw;
  }
  Shortage shortage = take_shortage();
  shortage.message = std::move(message);
  if (shortage.block.empty()) shortage.block = block_name(block_trail().failed);
  return shortage;
}

}  // namespace tanren
