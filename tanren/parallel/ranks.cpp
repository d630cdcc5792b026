#include "tanren/parallel/ranks.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/ops/synchronised_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace tanren {

namespace {

// Adds a part with its length before it: one text holds all names and values.
void append(std::string& text, const std::string& part) {
  text += fmt::format("{}:{}", part.size(), part);
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t colon = text.find(':', at);
    const size_t length = std::stoul(text.substr(at, colon - at));
    parts.push_back(text.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  return parts;
}

// The sum of a tensor's bits as integers: one number that a changed element changes.
at::Tensor sum_of_bits(const at::Tensor& tensor) {
  at::Tensor bits;
  switch (tensor.element_size()) {
    case 8: bits = tensor.view(at::kLong); break;
    case 4: bits = tensor.view(at::kInt); break;
    case 2: bits = tensor.view(at::kShort); break;
    default: bits = tensor.view(at::kByte);
  }
  return bits.sum(at::kLong);
}

// One flat tensor per dtype, on `device`, with the tensors in their order.
std::map<at::ScalarType, at::Tensor> flattened(const std::vector<at::Tensor>& tensors,
                                               at::Device device) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const auto& tensor : tensors) {
    // Booleans travel as bytes: not every backend carries them.
    const bool is_bool = tensor.scalar_type() == at::kBool;
    const at::Tensor carried = is_bool ? tensor.to(at::kByte) : tensor;
    by_type[tensor.scalar_type()].push_back(carried.detach().reshape(-1).to(device));
  }
  std::map<at::ScalarType, at::Tensor> flat;
  for (const auto& [type, pieces] : by_type) flat[type] = at::cat(pieces);
  return flat;
}

void put_back(const std::vector<at::Tensor>& tensors,
              const std::map<at::ScalarType, at::Tensor>& flat) {
  std::map<at::ScalarType, int64_t> offsets;
  for (at::Tensor tensor : tensors) {
    int64_t& offset = offsets[tensor.scalar_type()];
    tensor.copy_(
        flat.at(tensor.scalar_type()).narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

at::Tensor gather_row(Communicator& comm, const at::Tensor& row) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = row.to(comm.device_for(row.device()));
  const at::Tensor all = at::empty({comm.world_size(), own.numel()}, own.options());
  comm.gather(all, own);
  return all.to(row.device());
}

}  // namespace

RankAxis::RankAxis() : communicator_(single_communicator()) {}

Ranks::Ranks() = default;

Ranks::Ranks(const std::shared_ptr<Communicator>& world, ParallelPlan plan,
             std::shared_ptr<std::atomic<int>> open_windows)
    : Ranks(RankAxes{.world = RankAxis(world), .data = RankAxis(world), .pipeline = RankAxis()},
            std::move(plan), std::move(open_windows)) {}

Ranks::Ranks(RankAxes axes, ParallelPlan plan, std::shared_ptr<std::atomic<int>> open_windows)
    : axes_(std::move(axes)), plan_(std::move(plan)), open_windows_(std::move(open_windows)) {
  if (world().size() != pipeline().size() * data().size() ||
      world().rank() != rank_of(data().rank())) {
    throw Error(fmt::format(
        "[parallel] rank {} of {} was given as replica {} of {} in stage {} of {}; number ranks "
        "as stage × replicas + replica",
        world().rank(), world().size(), data().rank(), data().size(), pipeline().rank(),
        pipeline().size()));
  }
  if (data().alone() || plan_.buffers != RankBuffers::synchronised) return;
  install_synchronised_norm();
  across_ranks_ = std::make_shared<const GatherRows>([replicas = data()](const at::Tensor& row) {
    return gather_row(replicas.communicator(), row);
  });
}

ReducerOptions Ranks::reducer_options() const {
  ReducerOptions options{.first_bucket_bytes = plan_.first_bucket_bytes,
                         .bucket_bytes = plan_.bucket_bytes,
                         .overlap = plan_.overlap};
  if (plan_.compress == Compress::bf16) options.wire = at::kBFloat16;
  if (plan_.compress == Compress::fp16) options.wire = at::kHalf;
  return options;
}

std::vector<std::string> Ranks::agree_names(const std::vector<std::string>& mine) const {
  if (world().alone()) return mine;
  std::string text;
  for (const auto& name : mine) append(text, name);
  std::vector<std::string> names;
  for (const auto& theirs : gather_texts(world().communicator(), text)) {
    for (auto& name : parts_of(theirs)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

void Ranks::check_alike(const Facts& mine) const {
  if (world().alone()) return;
  std::string text;
  for (const auto& [name, value] : mine) {
    append(text, name);
    append(text, value);
  }
  const auto texts = gather_texts(world().communicator(), text);
  const auto first = parts_of(texts[0]);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto other = parts_of(texts[rank]);
    const size_t common = std::min(first.size(), other.size());
    size_t i = 0;
    while (i + 1 < common && first[i] == other[i] && first[i + 1] == other[i + 1]) i += 2;
    const auto told = [&](const std::vector<std::string>& facts) {
      if (i + 1 >= facts.size()) return std::string("nothing more");
      return facts[i] + " " + (facts[i + 1].empty() ? "none" : facts[i + 1]);
    };
    const bool is_cut = i < first.size() && first[i] == "parallel.cut_at";
    settle(world().communicator());
    throw ConfigError(fmt::format(
        "[parallel] rank {} has {}, rank 0 has {}; {}", rank, told(other), told(first),
        is_cut ? "each process predicts the stages by its own run.threads: give all the same, or "
                 "name parallel.cut_at"
               : "start every rank with the same program, config and data"));
  }
}

void Ranks::take_from(const std::vector<at::Tensor>& tensors, int64_t replica) const {
  if (data().alone() || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  Communicator& comm = data().communicator();
  const auto flat = flattened(tensors, comm.device_for(tensors.front().device()));
  for (const auto& [type, values] : flat) comm.broadcast(values, static_cast<int>(replica));
  put_back(tensors, flat);
}

void Ranks::take_mean(const std::vector<at::Tensor>& tensors,
                      const std::vector<double>& weights) const {
  if (data().alone() || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  Communicator& comm = data().communicator();
  std::vector<at::Tensor> pieces;
  pieces.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    pieces.push_back(tensor.detach().reshape(-1).to(comm.device_for(tensor.device()), at::kDouble));
  }
  const at::Tensor flat = at::cat(pieces);
  const double own = weights[static_cast<size_t>(data().rank())];
  if (own > 0) {
    flat.mul_(own / std::accumulate(weights.begin(), weights.end(), 0.0));
  } else {
    flat.zero_();  // 0 times a non-finite value is not 0
  }
  comm.sum(flat);
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    tensor.copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

void Ranks::check_equal(const TensorMap& tensors, const std::string& when) const {
  if (data().alone() || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  for (const auto& [name, tensor] : tensors) sums.push_back(sum_of_bits(tensor.detach()));
  const at::Tensor stacked = at::stack(sums);
  Communicator& comm = data().communicator();
  const at::Tensor mine = stacked.to(comm.device_for(stacked.device()));
  const at::Tensor all = at::empty({data().size() * mine.numel()}, mine.options());
  comm.start_gather(all, mine)->wait_on_host();
  const at::Tensor rows = all.view({data().size(), -1}).to(at::kCPU);
  if (rows.eq(rows[0]).all().item<bool>()) return;
  size_t index = 0;
  for (const auto& [name, tensor] : tensors) {
    for (int64_t replica = 1; replica < data().size(); ++replica) {
      const auto place = static_cast<int64_t>(index);
      if (rows[replica][place].item<int64_t>() == rows[0][place].item<int64_t>()) continue;
      throw_differs(when, name, rank_of(replica), rank_of(0), comm);
    }
    ++index;
  }
}

void Ranks::throw_differs(const std::string& when, const std::string& name, int64_t rank,
                          int64_t first, Communicator& comm) const {
  settle(comm);
  throw CommError(
      fmt::format("[parallel] {}: {} of rank {} is no longer rank {}'s; something outside of the "
                  "run changed it, or a machine computes wrongly: resume from the last checkpoint "
                  "without that machine",
                  when, name, rank, first));
}

void Ranks::take_from_owners(const std::vector<TiedTensor>& tied) const {
  const at::NoGradGuard no_grad;
  Communicator& comm = pipeline().communicator();
  for (const TiedTensor& one : tied) {
    if (!one.tensor.defined()) continue;
    const at::Tensor own = one.tensor.detach();
    at::Tensor carried = own.contiguous().to(comm.device_for(own.device()));
    const auto owner = static_cast<int>(one.stages.front());
    if (pipeline().rank() != owner) {
      if (carried.is_same(own)) carried = at::empty_like(own);
      comm.start_receive(carried, owner, one.name)->wait();
      own.copy_(carried);
      continue;
    }
    std::vector<Communicator::Work> works;
    for (size_t i = 1; i < one.stages.size(); ++i) {
      works.push_back(comm.start_send(carried, static_cast<int>(one.stages[i]), one.name));
    }
    for (const auto& work : works) work->wait();
  }
}

void Ranks::check_tied(const std::vector<TiedTensor>& tied, const std::string& when) const {
  if (pipeline().alone() || tied.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<int64_t> sums;
  for (const TiedTensor& one : tied) {
    const bool is_held = one.tensor.defined();
    sums.push_back(is_held ? sum_of_bits(one.tensor.detach()).item<int64_t>() : 0);
  }
  Communicator& comm = pipeline().communicator();
  const at::Tensor rows = gather_numbers(comm, sums);
  for (size_t i = 0; i < tied.size(); ++i) {
    const auto sum_on = [&](int64_t stage) {
      return rows[stage][static_cast<int64_t>(i)].item<int64_t>();
    };
    const int64_t owner = tied[i].stages.front();
    for (const int64_t stage : tied[i].stages) {
      if (sum_on(stage) == sum_on(owner)) continue;
      const int64_t replica = data().rank();
      throw_differs(when, tied[i].name, rank_of(stage, replica), rank_of(owner, replica), comm);
    }
  }
}

}  // namespace tanren
