// The rows that data.split sets apart for evaluation. Invariant: the part of a row follows from the
// hashes and classes of the rows alone, so every start, rank and machine finds the same two parts,
// and rows of one hash lie in the same part. Called where a source is opened.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tanren {

// XXH3 (64 bits, seed 0) of a row's text or of a file's name.
uint64_t split_hash(std::string_view text);
// The same of a row's number, as 8 bytes.
uint64_t split_hash(int64_t row);

// Returns the indices of the rows of the evaluation part (`eval`) or of the training part, rising.
// Both parts together are all rows. `classes` is empty, or has the class of each row.
//
// Without classes a row is for evaluation if its hash, as a number in [0, 1), is below `share`. The
// row with the smallest hash always is, the one with the largest never: neither part is empty, and
// a further row moves at most these two.
//
// With classes the rows with the smallest hashes of each class are for evaluation: round(share × n)
// of its n rows, at least 1 and at most n - 1, so a class of one row is for training alone. Rows of
// one hash move as one; a group of them that would miss that number by more is passed over.
//
// If all rows of a class (without classes: all rows) have one hash, they are for training.
std::vector<int64_t> split_rows(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& classes, double share, bool eval);

// Those of `hashes` that belong to `rows`, in their order; empty if there are no hashes.
std::vector<uint64_t> hashes_of(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& rows);

}  // namespace tanren
