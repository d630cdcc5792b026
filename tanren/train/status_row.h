// StatusRow: the numbers of a window that the host needs, in one row. Writing a part gives its
// place; the row is joined over ranks by one all-reduce and read at once; then each part is taken
// from its place. With one rank nothing is sent and every part stays as it is. Invariant: the one
// device read of a step. Called by window.
#pragma once

#include "tanren/ops/sums_of_squares.h"
#include "tanren/parallel/ranks.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace tanren {

class StatusRow {
 public:
  // How the parts of several ranks are combined.
  enum class Join {
    own,  // each rank keeps its own
    sum,  // the sum over ranks
  };
  struct Part {
    Join join = Join::own;
    bool is_from_host = false;
    size_t begin = 0, length = 0;
    size_t columns = 0;  // above 0: taken as the sums of so many columns
  };

  StatusRow(const Ranks& ranks, at::Device device) : ranks_(ranks), device_(device) {}

  // Adds scalars of any dtype that are on the device.
  Part add(const std::vector<at::Tensor>& scalars, Join join);
  // Adds numbers of the host, which become sums over ranks.
  Part add(const std::vector<double>& numbers);
  // Adds sums of squares, which become sums over ranks. Every rank must add the same number of
  // them.
  Part add(const SumsOfSquares& squares);
  // Adds the sums of `columns` columns over all rows of all ranks. `scalars` are this rank's rows,
  // one after the other, and were added as `own`.
  Part add_column_sums(const Part& own, const std::vector<at::Tensor>& scalars, size_t columns);
  // Joins the row over ranks and reads it.
  void read();
  // After read(): the numbers of the part.
  std::vector<double> take(const Part& part) const;

 private:
  void share(const at::Tensor& values);  // 1-dim

  const Ranks& ranks_;
  at::Device device_;                     // of the step
  std::vector<at::Tensor> own_, shared_;  // scalars; 1-dim, in double
  std::vector<double> numbers_;           // of the host; shared between several ranks
  size_t num_shared_ = 0;                 // numbers of `shared_`
  std::vector<double> read_own_, read_shared_;
};

}  // namespace tanren
