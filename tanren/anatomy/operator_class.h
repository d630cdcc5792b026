// Classifies operators by their name into the classes of the anatomy's table. A pure function, for
// the recorder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tanren {

enum class OperatorClass : uint8_t {
  contractions,    // products of matrices, convolutions, attention
  normalisations,  // reductions, then applied: softmax, layer norm, losses, pooling, sums
  element_wise,    // activations, dropout, additions
  data_movement,   // copies, casts, gathers: no arithmetic
  optimizer,       // the whole update, apart from forward and backward
  loader,          // the step waits for its batch
  idle,            // forward and backward outside of any operator: the host between kernels
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

// Returns one of the first four. `full` is the profiler's name: "aten::mm",
// "tanren::attention_backward".
OperatorClass class_of_operator(std::string_view full);

// Operators that only allocate: no bytes move.
bool only_allocates(std::string_view full);
// Operators that read only as much of their first input as they write.
bool gathers(std::string_view full);

}  // namespace tanren
