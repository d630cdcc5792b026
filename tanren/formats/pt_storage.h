// The storages of a .pt file: raw bytes by key, and the checks that keep every tensor inside its
// storage. Used by pt_file alone.
#pragma once

#include "tanren/formats/mapped_file.h"
#include "tanren/formats/pickle.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace tanren {

class PtStorages {
 public:
  PtStorages(std::shared_ptr<MappedFile> mapped, const std::string& where)
      : mapped_(std::move(mapped)), where_(where) {}

  void add(const std::string& key, std::string_view bytes) { bytes_[key] = bytes; }

  // The 1-dim tensor over the storage that the persistent id at `index` names. Equal keys give the
  // same memory. `dtype` ("torch.float32") is used if the id names an untyped storage.
  at::Tensor at(const Pickle& pickle, uint32_t index, std::string_view dtype);

  // For the format before torch 1.6: the dtype of each storage that `pickle` names, by key.
  std::map<std::string, at::ScalarType> legacy_types(const Pickle& pickle) const;
  // For the same format: adds storage `key` from the front of `rest` and moves `rest` past its
  // bytes.
  void add_legacy(const std::map<std::string, at::ScalarType>& types, const std::string& key,
                  std::string_view& rest);

 private:
  at::Tensor over(const std::string& key, at::ScalarType type, int64_t numel);

  std::shared_ptr<MappedFile> mapped_;
  const std::string& where_;
  std::map<std::string, std::string_view> bytes_;
  std::map<std::string, at::Tensor> aligned_;  // copies of storages that are unaligned in the file
  std::map<std::string, at::Tensor> made_;  // by key and dtype, so that tied tensors share memory
};

// A view of `storage` (1-dim), checked to lie within it.
at::Tensor strided_view(const at::Tensor& storage, int64_t offset,
                        const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                        const std::string& where);

}  // namespace tanren
