// Shapes of the operators that torch has no shape function for, or whose own would compute: those of
// our models, forward and backward. Internal to dry_scope.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace tanren {

// Names with overload of the operators that must not take torch's way, which would compute.
const std::vector<const char*>& dry_operators();

// Replaces the arguments on `stack` by results; false, with the stack as it was: not known here.
bool run_dry_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace tanren
