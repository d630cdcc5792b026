#include "tanren/run/failure.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace tanren {
namespace {

Failure failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    return failure_of_current();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// An error that is nested in another one, as the endings of a run nest it.
template <class Inner>
void throw_told() {
  try {
    throw Inner("[room] inner");
  } catch (...) {
    std::throw_with_nested(RunError("[train] outer"));
  }
}

TEST(FailureOf, an_error_has_its_line_and_the_cause_of_its_type) {
  const Failure failure = failure_of([] { throw NonFiniteError("[guard] step 3: no"); });
  EXPECT_EQ(failure.reason, "[guard] step 3: no");
  EXPECT_EQ(failure.cause, "non_finite");
  EXPECT_EQ(failure_of([] { throw MemoryError("m"); }).cause, "memory");
  EXPECT_EQ(failure_of([] { throw DataError("d"); }).cause, "data");
  EXPECT_EQ(failure_of([] { throw DiskError("d"); }).cause, "disk");
  EXPECT_EQ(failure_of([] { throw ConfigError("c"); }).cause, "other");
  EXPECT_EQ(failure_of([] { throw LimitError("[plan] memory.limit"); }).cause, "memory");
  // Another rank's failure: only the line says of which kind it is.
  EXPECT_EQ(failure_of([] { throw CommError("[comm] rank 1: out of memory"); }).cause, "other");
}

TEST(FailureOf, an_error_told_by_another_one_has_the_cause_of_the_first) {
  EXPECT_EQ(failure_of(throw_told<DiskError>).cause, "disk");
  EXPECT_EQ(failure_of(throw_told<NonFiniteError>).cause, "non_finite");
  EXPECT_EQ(failure_of(throw_told<std::runtime_error>).cause, "other");
  EXPECT_EQ(failure_of(throw_told<DiskError>).reason, "[train] outer");
}

TEST(FailureOf, what_is_no_error_of_ours_has_the_line_that_the_command_line_prints) {
  const Failure thrown = failure_of([] { throw std::runtime_error("one\ntwo"); });
  EXPECT_EQ(thrown.reason, "[run] one");
  EXPECT_EQ(thrown.cause, "other");
  EXPECT_EQ(failure_of([] { throw 42; }).cause, "other");
  EXPECT_EQ(failure_of([] { throw 42; }).reason,
            "[run] something was thrown that is no std::exception");
  EXPECT_EQ(failure_of([] { throw std::bad_alloc(); }).cause, "memory");
  const auto full = [] {
    throw std::filesystem::filesystem_error("x",
                                            std::make_error_code(std::errc::no_space_on_device));
  };
  EXPECT_EQ(failure_of(full).cause, "disk");
}

TEST(FailureOf, a_lack_of_memory_outside_of_steps_says_what_would_need_less) {
  const Failure failure = failure_of(
      [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "[memory] 5 GB more; the limit is 4 GB"); });
  EXPECT_EQ(failure.cause, "memory");
  EXPECT_EQ(failure.reason.find("[memory] 5 GB more; the model, its gradients"), 0)
      << failure.reason;
}

}  // namespace
}  // namespace tanren
