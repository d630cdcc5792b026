#include "tanren/train/explained.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/data/field_bounds.h"
#include "tanren/train/step_error.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// The first number out of bounds in the batches, and the ranges of the last batch looked at.
struct Found {
  std::optional<BadValue> value;
  std::string ranges;
};

Found look(const Work& work) {
  Found found;
  try {
    const FieldBounds bounds = field_bounds(work.dataset.info(), work.classes);
    Batch batch;
    while (!found.value && work.next_batch && work.next_batch(batch)) {
      found.value = find_bad_value(batch, bounds);
      found.ranges = ranges_text(batch);
    }
  } catch (...) {  // what failed first is the error to report
    return found;
  }
  return found;
}

[[noreturn]] void tell_value(const Work& work, const BadValue& value, const std::string& message) {
  throw DataError(fmt::format(
      "[train] {}: {}: {}; fix the data, or what the dataset says of its vocabulary and classes",
      work.name, value.text(), message));
}

// The batch as the loader collated it for training.
Batch collated_again(const Dataset& dataset, const GlobalBatch& batch, uint64_t seed) {
  const at::Tensor& ids = batch.local.ids;
  const auto* first = ids.const_data_ptr<int64_t>();
  const std::vector<int64_t> indices(first, first + ids.numel());
  return collated_for_training(dataset, indices, {seed, batch.epoch}).batch;
}

}  // namespace

void explained(const Work& work, const MemoryGauge& gauge, MemoryState& state,
               const std::function<void()>& run) {
  std::string message;
  Fault fault = Fault::none;
  std::exception_ptr ours;  // from an operator that checks its labels, but knows no sample
  try {
    run();
    return;
  } catch (const DataError& error) {
    message = error.what();
    fault = fault_of(message);
    if (fault != Fault::index) throw;
    ours = std::current_exception();
  } catch (const StepError& error) {
    message = error.said();
    fault = fault_of(message);
    if (fault == Fault::none) throw;
  } catch (const Error&) {
    throw;  // already an error of this library
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    message = line_of(error);
    fault = fault_of(message);
    if (fault == Fault::none) throw;
  }
  // A failed assert may appear in a library's words, so the data are checked in any case.
  const Found found = look(work);
  if (found.value) tell_value(work, *found.value, message);
  if (ours) std::rethrow_exception(ours);
  state.update(gauge);
  std::string line = fmt::format("[train] {}: {}; {}", work.name, message,
                                 explanation(fault, state, work.microbatch));
  if (fault == Fault::index) {
    line += "; the data are within what they announce" +
            (found.ranges.empty() ? "" : " (the last batch: " + found.ranges + ")") +
            ": look for an index that the model computes, or for a table that is too small";
  }
  throw RunError(line);
}

std::optional<StepReport> explained_update(RunState& run, const Parts& parts,
                                           const GlobalBatch& batch, const Dataset& dataset,
                                           MemoryState& state) {
  bool looked = false;
  const auto host = [&](Batch& again) {
    if (std::exchange(looked, true)) return false;
    const bool is_here = std::all_of(batch.local.fields.begin(), batch.local.fields.end(),
                                     [](const auto& field) { return field.second.is_cpu(); });
    // On a device the batch cannot be read after a fault; its samples are collated again from their
    // ids.
    again = is_here ? batch.local : collated_again(dataset, batch, run.seed);
    return true;
  };
  const Work work{.name = fmt::format("step {}", to_text(run.step() + 1)),
                  .dataset = dataset,
                  .classes = run.task.classes,
                  .microbatch = parts.plan.batch.microbatch,
                  .next_batch = host};
  std::optional<StepReport> report;
  explained(work, parts.recovery->gauge(), state, [&] { report = update(run, parts, batch); });
  return report;
}

}  // namespace tanren
