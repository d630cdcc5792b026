#include "tanren/memory/fault.h"

#include "tanren/base/graph_facts.h"
#include "tanren/base/text.h"

#include <array>
#include <exception>

namespace tanren {

namespace {

// In order of precedence: after a failed assert every later call fails too, and its message may
// have a library's words after the assert's.
struct Words {
  Fault fault;
  std::string_view text;
};
constexpr std::array<Words, 23> kFaultWords = {{
    {Fault::index, "device-side assert"},
    {Fault::index, "index out of range"},
    {Fault::index, "out of bounds"},
    {Fault::index, "[ops] label"},
    {Fault::memory, "CUBLAS_STATUS_ALLOC_FAILED"},
    {Fault::memory, "CUBLAS_STATUS_NOT_INITIALIZED"},
    {Fault::memory, "CUBLAS_STATUS_INTERNAL_ERROR"},
    {Fault::memory, "CUDNN_STATUS_ALLOC_FAILED"},
    {Fault::memory, "CUDNN_STATUS_NOT_INITIALIZED"},
    {Fault::memory, "CUDNN_STATUS_INTERNAL_ERROR"},
    {Fault::memory, "CUDNN_STATUS_MAPPING_ERROR"},
    {Fault::memory, "CUSOLVER_STATUS_ALLOC_FAILED"},
    {Fault::memory, "CUSPARSE_STATUS_ALLOC_FAILED"},
    {Fault::memory, "CUFFT_ALLOC_FAILED"},
    {Fault::memory, "could not create a primitive"},
    {Fault::launch, "unspecified launch failure"},
    {Fault::launch, "illegal memory access"},
    {Fault::launch, "misaligned address"},
    {Fault::launch, "illegal instruction"},
    {Fault::launch, "out of resources"},
    {Fault::launch, "requested for launch"},
    {Fault::launch, "STATUS_EXECUTION_FAILED"},
    {Fault::graph, kGraphFailure},
}};

std::string held(const MemoryState& state) {
  if (state.live == 0 && state.peak == 0) return "";
  std::string text = "tensors held " + size_text(state.live) + ", at most " + size_text(state.peak);
  if (state.limit > 0) text += ", of " + size_text(state.limit);
  std::string owners;
  for (const auto& [kind, bytes] : state.owners) {
    owners += (owners.empty() ? "" : ", ") + kind + " " + size_text(bytes);
  }
  return text + (owners.empty() ? "" : " (" + owners + ")") + "; ";
}

}  // namespace

Fault fault_of(std::string_view message) {
  for (const auto& [fault, text] : kFaultWords) {
    if (message.find(text) != std::string_view::npos) return fault;
  }
  return Fault::none;
}

void MemoryState::update(const MemoryGauge& gauge) {
  try {
    if (!gauge.counts()) return;
    live = gauge.live();
    peak = gauge.whole_peak();
    owners = gauge.owners();
    limit = gauge.limit();  // asks the driver, which a dead context no longer answers
  } catch (const std::exception&) {
    return;
  }
}

std::string explanation(Fault fault, const MemoryState& state, int64_t microbatch) {
  if (fault == Fault::none) return "";
  const std::string blocking = "CUDA_LAUNCH_BLOCKING=1 names the operator";
  if (fault == Fault::index) {
    return "a kernel was given an index that its table does not have; " + blocking;
  }
  if (fault == Fault::graph) {
    return "most often an index without a row in its table, or an operator of torch that refused "
           "its inputs: the lines on stderr before this one name it";
  }
  const std::string smaller = microbatch > 1
                                  ? fmt::format("batch.microbatch = {}", to_text(microbatch / 2))
                                  : "shorter samples";
  return fmt::format(
      "often out of memory in disguise, because libraries take theirs beside the tensors'; {}to "
      "confirm, see whether it goes away with {} or with memory.limit = \"0.8\", which leaves "
      "libraries more room{}",
      held(state), smaller,
      fault == Fault::launch ? ", and if not, " + blocking + " whose index or address is wrong"
                             : "; " + blocking);
}

}  // namespace tanren
