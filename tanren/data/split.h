// The rows that data.split sets apart for evaluation. Invariant: the part of a row follows from the
// hashes and classes of the rows alone, so every start, rank and machine finds the same two parts,
// and rows of one hash and class lie in the same part. Called where a source is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

// XXH3 (64 bits, seed 0) of a row's text or of a file's name.
uint64_t split_hash(std::string_view text);
// The same of a row's number, as 8 bytes.
uint64_t split_hash(int64_t row);

// The indices of the rows of both parts, rising. Together they are all rows.
struct SplitRows {
  std::vector<int64_t> train, eval;
};

// `classes` is empty, or has the class of each row.
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
SplitRows split_rows(const std::vector<uint64_t>& hashes, const std::vector<int64_t>& classes,
                     double share);
// One of the parts: evaluation's (`eval`), or training's.
std::vector<int64_t> split_rows(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& classes, double share, bool eval);

// Two rows of one hash and different classes, so that each part may get one; empty: there are none.
std::optional<std::pair<int64_t, int64_t>> rows_of_two_classes(const std::vector<uint64_t>& hashes,
                                                               const std::vector<int64_t>& classes);

// Those of `hashes` that belong to `rows`, in their order; empty if there are no hashes.
std::vector<uint64_t> hashes_of(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& rows);

}  // namespace tanren
