#include "tanren/comm/exchange.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace tanren {

namespace {

// The bytes of all ranks, one row each, the shorter ones followed by zeros.
at::Tensor gather_bytes(Communicator& comm, const at::Tensor& mine, int64_t longest) {
  const at::Tensor part = at::zeros({longest}, at::TensorOptions(comm.device()).dtype(at::kByte));
  part.narrow(0, 0, mine.numel()).copy_(mine);
  at::Tensor whole = at::empty({comm.world_size(), longest}, part.options());
  comm.start_gather(whole, part)->wait_on_host();
  return whole;
}

int64_t hash_of_dims(at::IntArrayRef sizes) {  // of all but the first
  uint64_t hash = 14695981039346656037U;       // FNV-1a
  for (const int64_t size : sizes.slice(1)) {
    hash = (hash ^ static_cast<uint64_t>(size)) * 1099511628211U;
  }
  return static_cast<int64_t>(hash >> 1);
}

// Facts about its rows that gather_rows sends to the other ranks.
enum : int64_t { rows_fact, row_bytes_fact, dtype_fact, dims_fact, num_facts };

void check_alike(Communicator& comm, const at::Tensor& facts) {
  const auto fact = facts.accessor<int64_t, 2>();
  const auto rows_of = [&](int64_t rank) {
    return fmt::format("{} bytes of {} each", fact[rank][row_bytes_fact],
                       c10::toString(static_cast<at::ScalarType>(fact[rank][dtype_fact])));
  };
  for (int64_t rank = 1; rank < facts.size(0); ++rank) {
    bool alike = true;
    for (int64_t i = row_bytes_fact; i < num_facts; ++i)
      alike = alike && fact[rank][i] == fact[0][i];
    if (alike) continue;
    settle(comm);
    throw CommError(fmt::format(
        "[comm] rows to gather: those of rank {} have {}, those of rank 0 {}{}; ranks must run the "
        "same program on the same config",
        rank, rows_of(rank), rows_of(0),
        fact[rank][dims_fact] == fact[0][dims_fact] ? "" : ", in other dims"));
  }
}

}  // namespace

at::Tensor gather_numbers(Communicator& comm, const std::vector<int64_t>& values) {
  const at::NoGradGuard no_grad;
  const auto num = static_cast<int64_t>(values.size());
  const at::Tensor part = at::tensor(values, at::kLong).to(comm.device());
  const at::Tensor whole = at::empty({comm.world_size(), num}, part.options());
  comm.start_gather(whole, part)->wait_on_host();
  return whole.to(at::kCPU);
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  if (comm.world_size() == 1) return {mine};
  const at::NoGradGuard no_grad;
  const at::Tensor lengths = gather_numbers(comm, {static_cast<int64_t>(mine.size())});
  const auto length = lengths.accessor<int64_t, 2>();
  const auto longest = lengths.max().item<int64_t>();
  std::vector<std::string> texts(static_cast<size_t>(comm.world_size()));
  if (longest == 0) return texts;
  const at::Tensor bytes = at::empty({static_cast<int64_t>(mine.size())}, at::kByte);
  std::copy(mine.begin(), mine.end(), static_cast<char*>(bytes.mutable_data_ptr()));  // or nothing
  const at::Tensor all = gather_bytes(comm, bytes, longest).to(at::kCPU);
  for (int64_t rank = 0; rank < comm.world_size(); ++rank) {
    const at::Tensor row = all.select(0, rank);
    texts[static_cast<size_t>(rank)].assign(static_cast<const char*>(row.const_data_ptr()),
                                            static_cast<size_t>(length[rank][0]));
  }
  return texts;
}

std::vector<double> sum_numbers(Communicator& comm, const std::vector<double>& mine) {
  if (comm.world_size() == 1 || mine.empty()) return mine;
  const at::NoGradGuard no_grad;
  const at::Tensor sum = at::tensor(mine, at::kDouble).to(comm.device());
  comm.start_sum(sum)->wait_on_host();
  const at::Tensor on_cpu = sum.to(at::kCPU);
  const auto* first = on_cpu.const_data_ptr<double>();
  return {first, first + on_cpu.numel()};
}

at::Tensor gather_rows(Communicator& comm, const at::Tensor& rows) {
  if (rows.dim() == 0) {
    throw CommError("[comm] rows to gather: a scalar has none; give it a first dim");
  }
  if (comm.world_size() == 1) return rows;
  const at::NoGradGuard no_grad;
  int64_t row_elements = 1;
  for (const int64_t size : rows.sizes().slice(1)) row_elements *= size;
  const int64_t row_bytes = row_elements * static_cast<int64_t>(rows.element_size());
  const at::Tensor facts =
      gather_numbers(comm, {rows.size(0), row_bytes, static_cast<int64_t>(rows.scalar_type()),
                            hash_of_dims(rows.sizes())});
  check_alike(comm, facts);
  const auto fact = facts.accessor<int64_t, 2>();
  const at::Tensor counts = facts.select(1, rows_fact);
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = counts.sum().item<int64_t>();
  at::Tensor result = at::empty(sizes, rows.options());
  const int64_t longest = counts.max().item<int64_t>() * row_bytes;
  if (longest == 0) return result;
  // Sent as bytes, so that every dtype works on any engine.
  const at::Tensor all =
      gather_bytes(comm, rows.contiguous().view(-1).view(at::kByte).to(comm.device()), longest);
  const at::Tensor to = result.view(-1).view(at::kByte);
  int64_t first = 0;
  for (int64_t rank = 0; rank < comm.world_size(); ++rank) {
    const int64_t length = fact[rank][rows_fact] * row_bytes;
    to.narrow(0, first, length).copy_(all.select(0, rank).narrow(0, 0, length));
    first += length;
  }
  return result;
}

void settle(Communicator& comm) {
  if (comm.world_size() == 1) return;
  try {
    comm.sum(at::zeros({1}, at::TensorOptions(comm.device()).dtype(at::kFloat)));
  } catch (const CommError&) {  // another rank ended first; it found the same error
  }
}

}  // namespace tanren
