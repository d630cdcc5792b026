#include "tanren/checkpoint/exchange_slices.h"

#include "tanren/base/json_text.h"
#include "tanren/checkpoint/values_json.h"
#include "tanren/comm/exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <string>

namespace tanren {

namespace {

using ListJson = nlohmann::ordered_json;

// A rank's slices with the names, dtypes and shapes of their tensors, and its values, as JSON.
std::string list_of(const SlicedState& mine) {
  ListJson slices = ListJson::array();
  for (const StateSlice& slice : mine.slices) {
    ListJson tensors = ListJson::array();
    for (const auto& [name, tensor] : mine.state.tensors) {
      if (!name.starts_with(slice.name + ".")) continue;
      tensors.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
    }
    slices.push_back({slice.name, slice.whole, slice.begin, slice.end, slice.sizes, slice.strides,
                      std::move(tensors)});
  }
  return exact_json_text(
      ListJson{{"slices", slices}, {"values", values_to_json(mine.state.values)}});
}

at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

}  // namespace

SlicedState exchange_slices(Communicator& ranks, const SlicedState& mine,
                            const std::function<bool(const StateSlice&)>& wants) {
  const at::NoGradGuard no_grad;
  SlicedState all;
  const auto lists = gather_texts(ranks, list_of(mine));
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    const auto list = parse_ordered_json(lists[rank]);
    const auto root = static_cast<int>(rank);
    all.state.values.merge(values_from_json(list["values"]));
    for (const auto& entry : list["slices"]) {
      const StateSlice slice{entry[0], entry[1], entry[2], entry[3], entry[4], entry[5]};
      const bool wanted = wants(slice);
      if (wanted) all.slices.push_back(slice);
      for (const auto& described : entry[6]) {
        const auto name = described[0].get<std::string>();
        const auto type = static_cast<at::ScalarType>(described[1].get<int>());
        const auto options = at::TensorOptions(type).device(ranks.device());
        const at::Tensor carried =
            root == ranks.rank() ? mine.state.tensors.at(name).to(ranks.device()).clone()
                                 : at::empty(described[2].get<std::vector<int64_t>>(), options);
        ranks.start_broadcast(bytes_of(carried), root)->wait_on_host();
        if (wanted) all.state.tensors.set(name, carried);
      }
    }
  }
  return all;
}

}  // namespace tanren
