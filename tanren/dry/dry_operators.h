// Result shapes of the operators for which torch has no shape function, or one that would compute.
// Covers the operators of our models, forward and backward. Internal to dry_scope.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace tanren {

// Names, with overload, of the operators whose own implementation in torch would compute: a dry run
// must replace these.
const std::vector<const char*>& dry_operators();

// Replaces the arguments on `stack` by results. Returns false, with the stack unchanged, if the
// operator is not known here.
bool run_dry_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace tanren
