// The rows that data.split sets apart for evaluation. Invariants: the split depends only on the
// hashes and classes of the rows, so every start, rank and machine finds the same two parts. Rows
// with the same hash and class lie in the same part. Called when a source is opened.
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

// The row indices of both parts, in rising order. Each row is in exactly one part.
struct SplitRows {
  std::vector<int64_t> train, eval;
};

// `classes` is empty, or has the class of each row.
//
// Without classes: a row is for evaluation if its hash, as a number in [0, 1), is below `share`.
// The row with the smallest hash is always for evaluation and the row with the largest hash never,
// so neither part is empty. An added row changes the part of at most these two rows.
//
// With classes: in each class, the rows with the smallest hashes are for evaluation: round(share ×
// n) of its n rows, at least 1 and at most n - 1. A class of one row is for training alone. Rows
// with the same hash stay together. A group of equal hashes is skipped if it does not bring the
// count closer to that number.
//
// If all rows of a class (without classes: all rows) have the same hash, they are for training.
SplitRows split_rows(const std::vector<uint64_t>& hashes, const std::vector<int64_t>& classes,
                     double share);
// Returns one of the parts: evaluation's if `eval` is true, otherwise training's.
std::vector<int64_t> split_rows(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& classes, double share, bool eval);

// Finds two rows with the same hash and different classes, which could come into different parts.
// Empty if there are none.
std::optional<std::pair<int64_t, int64_t>> rows_of_two_classes(const std::vector<uint64_t>& hashes,
                                                               const std::vector<int64_t>& classes);

// The hashes of `rows`, in the order of `rows`; empty if there are no hashes.
std::vector<uint64_t> hashes_of(const std::vector<uint64_t>& hashes,
                                const std::vector<int64_t>& rows);

}  // namespace tanren
