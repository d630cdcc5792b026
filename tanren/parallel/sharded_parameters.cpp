#include "tanren/parallel/sharded_parameters.h"

#include "tanren/base/memory_tag.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace tanren {

ShardedParameters::ShardedParameters(const Gradients& gradients) {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryKind::weights);
  const FlatLayout& layout = gradients.layout();
  const auto& parameters = gradients.parameters();
  for (const auto& bucket : layout.buckets) {
    const auto options = parameters[bucket.members.front()].options().requires_grad(false);
    const at::Tensor whole = at::zeros({bucket.size}, options);
    for (const size_t member : bucket.members) {
      at::Tensor parameter = parameters[member];
      at::Tensor place =
          whole.as_strided(parameter.sizes(), parameter.strides(), layout.places[member].offset);
      place.copy_(parameter.detach());
      parameter.set_data(place);
    }
    const int64_t part = bucket.size / gradients.sharding().layout.parts;
    parts_.push_back(whole.narrow(0, gradients.sharding().rank * part, part));
    whole_.push_back(whole);
  }
  for (const Slice& slice : gradients.slices()) {
    at::Tensor own = parts_[slice.bucket].narrow(0, slice.offset, slice.end - slice.begin).detach();
    own.mutable_grad() = gradients.slice_gradient(slice);
    owned_.push_back(std::move(own));
  }
}

// Operations that are under way write into the buffers.
ShardedParameters::~ShardedParameters() {
  for (const auto& work : works_) {
    try {
      work->wait();
    } catch (const std::exception&) {  // it is told where the numbers are needed
      continue;
    }
  }
}

void ShardedParameters::start_gather(Communicator& communicator) {
  for (size_t i = whole_.size(); i-- > 0;) {
    works_.push_back(communicator.start_gather(whole_[i], parts_[i]));
  }
}

void ShardedParameters::wait() {
  const std::vector<Communicator::Work> works = std::exchange(works_, {});
  for (const auto& work : works) work->wait();
}

}  // namespace tanren
