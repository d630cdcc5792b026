// Small exchanges over ranks, from and to the host: texts, numbers, rows. Invariant: the result is the
// same on every rank. Every rank calls the same one at the same time; with one rank nothing is sent.
// CommError as Communicator's waits throw it. Called by whoever compares or collects across ranks.
#pragma once

#include "tanren/comm/communicator.h"

#include <string>
#include <vector>

namespace tanren {

// The texts of all ranks, by rank. Of any lengths and bytes, empty ones too. Two operations.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

// The sum over ranks of each number, in fp64. As many numbers on every rank; none: nothing is sent.
// One operation.
std::vector<double> sum_numbers(Communicator& comm, const std::vector<double>& mine);

// The rows (entries of dim 0) of all ranks in the order of ranks, on the device of `rows`. A rank may
// have none; dtype and the other dims are alike on all ranks, or each rank throws a CommError that
// names the one that differs. Two operations.
at::Tensor gather_rows(Communicator& comm, const at::Tensor& rows);

// Before an error that every rank has found alike: none may end, which breaks the others' connections,
// while another is still in the exchange that told it. Throws nothing. One operation.
void settle(Communicator& comm);

}  // namespace tanren
