// What kind of work an operator does, by its name: the classes of the anatomy's table. A pure
// function, for the recorder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tanren {

enum class OperatorClass : uint8_t {
  contractions,    // products of matrices, convolutions, attention
  normalisations,  // one or more reductions, then applied: softmax, layer norm, losses, pooling, sums
  element_wise,    // activations, dropout, additions
  data_movement,  // copies, casts, gathers: no arithmetic
  optimizer,      // all of an update outside of forward and backward
  loader,         // the step waits for its batch
  idle,           // forward and backward outside of any operator: the host between kernels
};
constexpr size_t kNumOperatorClasses = 7;

constexpr std::array<std::string_view, kNumOperatorClasses> kOperatorClassNames = {
    "tensor contractions",
    "statistical normalisations",
    "element-wise",
    "data movement",
    "optimizer",
    "loader",
    "idle"};

constexpr std::string_view name(OperatorClass of) {
  return kOperatorClassNames[static_cast<size_t>(of)];
}

// One of the first four. `full` as a profiler hears it: "aten::mm", "tanren::attention_backward".
OperatorClass class_of_operator(std::string_view full);

// Operators that allocate and write nothing: no bytes move.
bool only_allocates(std::string_view full);
// Operators that read of their first input as much as they write, not all of it.
bool gathers(std::string_view full);

}  // namespace tanren
