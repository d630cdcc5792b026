// Small exchanges over ranks, from and to the host: texts, numbers, rows. Invariant: the result is
// the same on every rank. Every rank calls the same function at the same time; with one rank
// nothing is sent. CommError like the waits of Communicator. Called by code that compares or
// collects values across ranks.
#pragma once

#include "tanren/comm/communicator.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// The texts of all ranks, by rank. A text may have any length, including 0, and any bytes. Two
// operations.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

// The numbers of all ranks: [world_size, values.size()], kLong, on the CPU. Every rank gives the
// same count of numbers. One operation.
at::Tensor gather_numbers(Communicator& comm, const std::vector<int64_t>& values);

// The sum over ranks of each number, in fp64. Every rank gives the same count of numbers; if that
// is 0, nothing is sent. One operation.
std::vector<double> sum_numbers(Communicator& comm, const std::vector<double>& mine);

// The rows (entries of dim 0) of all ranks in the order of ranks, on the device of `rows`. A rank
// may have no rows. dtype and the other dims must be equal on all ranks; if not, each rank throws a
// CommError that names the first rank that differs. Two operations.
at::Tensor gather_rows(Communicator& comm, const at::Tensor& rows);

// Call this before throwing an error that every rank found. It waits until all ranks have left the
// exchange, because a rank that exits early breaks the others' connections. Throws nothing. One
// operation.
void settle(Communicator& comm);

}  // namespace tanren
