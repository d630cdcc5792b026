// Dataset: indexed samples that collate into batches. Invariant: collate is a pure function of the
// indices and safe to call from several threads. Called by the loader and by evaluation.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"
#include "tanren/data/data_part.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Without data.*.classes, classes from this number on are refused. A wrong label column is a more
// likely cause than a model with this many classes.
constexpr int64_t kMaxUnannouncedClass = 1'000'000;

struct Collated {
  Batch batch;
  Counts counts;  // "samples" at least; the loss terms are divided by these
};

// Random augmentation may depend only on these and on the sample's id.
struct Draw {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

// The input of data.split. The hash and the class of a sample must not depend on other samples.
struct SplitKeys {
  std::vector<uint64_t> hashes;  // one a sample: split_hash of its contents, name or number
  // The class of each sample. Empty if samples do not have exactly one class, or if samples with
  // the same hash may have different classes (a hash of the patient whom a picture shows).
  std::vector<int64_t> classes;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual DataInfo info() const = 0;
  // Returns the samples at `indices`, in that order, with ids filled in.
  virtual Collated collate(const std::vector<int64_t>& indices) const = 0;
  // The same for training: augmented, as a pure function of each sample's index and `draw`.
  virtual Collated collate_training(const std::vector<int64_t>& indices, const Draw&) const {
    return collate(indices);
  }
  // Number of samples of each class 0, 1, … of info().outputs. Empty if samples do not have exactly
  // one class, or if the dataset does not count.
  virtual std::vector<int64_t> class_counts() const { return {}; }
  // A name that the user knows: the sample's file below the data's folder ("a/1.jpg"), or "a/1" for
  // a pair of pictures. Empty if samples have no names.
  virtual std::string sample_name(int64_t /*index*/) const { return ""; }
  // The number of the sample in its source, from 0. It differs from `index` if this dataset is only
  // a part of the source.
  virtual int64_t source_row(int64_t index) const { return index; }
  // Hashes that identify these samples, beside their number. Must take at most a hundredth of the
  // time that opening took. A resumed run whose parts differ is refused, naming these parts.
  virtual std::vector<DataPart> parts() const { return {}; }
  // The keys of data.split. Samples with the same hash go to the same part of the split; open_split
  // throws DataError if they have different classes. By default the samples are hashed by number
  // and have no classes.
  virtual SplitKeys split_keys() const;
  // Frees what only split_keys needs. It is not called after this.
  virtual void drop_split_keys() {}
  // A dataset of only these samples, numbered from 0, with their source_row. Null if the caller can
  // use collate of this dataset instead, with `rows` as indices.
  virtual std::unique_ptr<Dataset> subset(const std::vector<int64_t>& /*rows*/) const {
    return nullptr;
  }
  // Problems so far that did not end the run, as one line for the log; empty if there were none.
  virtual std::string remarks() const { return ""; }
};

// Samples held in memory along dim 0 of every field. Rows are gathered by memcpy: torch's
// index_select would open OpenMP teams, which loader threads must not do.
class TensorDataset : public Dataset {
 public:
  // `hashes` has the split hash of each sample; if it is empty, samples are hashed by number.
  // DataError if a field is a scalar, the first dimensions differ or there are no samples.
  TensorDataset(TensorMap fields, DataInfo info, const std::string& what,
                std::vector<uint64_t> hashes = {});
  int64_t size() const override { return size_; }
  DataInfo info() const override { return info_; }
  Collated collate(const std::vector<int64_t>& indices) const override;
  std::vector<int64_t> class_counts() const override;
  std::vector<DataPart> parts() const override;
  SplitKeys split_keys() const override;
  void drop_split_keys() override { hashes_ = std::vector<uint64_t>(); }

 private:
  // One class of each sample; null if samples do not have exactly one.
  const at::Tensor* class_labels() const;

  TensorMap fields_;
  DataInfo info_;
  int64_t size_ = 0;
  std::vector<uint64_t> hashes_;
};

// Helpers for collate functions. DataError for an index outside [0, size).
void check_indices(const std::vector<int64_t>& indices, int64_t size);
at::Tensor ids_of(const std::vector<int64_t>& indices);
std::vector<int64_t> numbers_of(const at::Tensor& row);  // int64 [n], on the CPU
// Counts int64 labels in [0, classes) by class.
std::vector<int64_t> counts_of_classes(const at::Tensor& labels, int64_t classes);

// Opens the source that `options` describe. Error texts name it `what` ("data.train"). An
// evaluation set takes its class names and tokenizer from `train`, if `train` has them. DataError
// naming file, row and column for unusable data; ConfigError for unusable options.
std::unique_ptr<Dataset> open_dataset(const SourceOptions& options, const std::string& what,
                                      const DataInfo* train = nullptr);

// Opens images by file name, without labels (all 0). DataError for a missing file.
std::unique_ptr<Dataset> open_image_files(const SourceOptions& options, const std::string& what,
                                          const std::vector<std::filesystem::path>& files);

}  // namespace tanren
