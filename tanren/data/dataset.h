// Dataset: indexed samples that collate into batches. Invariant: collate is a pure function of the
// indices and safe to call from several threads. Called by the loader and by evaluation.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"
#include "tanren/data/data_part.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// A larger class without data.*.classes is a wrong column sooner than a model of that width.
constexpr int64_t kMaxUnannouncedClass = 1'000'000;

struct Collated {
  Batch batch;
  Counts counts;  // "samples" at least; what the loss terms are divided by
};

// What random augmentation may depend on, besides the sample's id.
struct Draw {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual DataInfo info() const = 0;
  // The samples at `indices`, in that order, ids filled.
  virtual Collated collate(const std::vector<int64_t>& indices) const = 0;
  // The same for training: augmented, as a pure function of each sample's index and `draw`.
  virtual Collated collate_training(const std::vector<int64_t>& indices, const Draw&) const {
    return collate(indices);
  }
  // Samples of each class 0, 1, … of info().outputs; empty where a sample has no one class, or nobody
  // counts.
  virtual std::vector<int64_t> class_counts() const { return {}; }
  // What tells these samples from others, beside their number. Must take at most a hundredth of what
  // opening took; a run that goes on on other parts is refused by their names.
  virtual std::vector<DataPart> parts() const { return {}; }
  // What has gone wrong so far without ending the run, as one line for the log; empty if nothing.
  virtual std::string remarks() const { return ""; }
};

// Samples held in memory, dim 0 of every field. Rows are gathered by memcpy: loader threads must
// not open OpenMP teams, which torch's index_select would.
class TensorDataset : public Dataset {
 public:
  // DataError if the fields' first dimensions differ or there are none.
  TensorDataset(TensorMap fields, DataInfo info, const std::string& what);
  int64_t size() const override { return size_; }
  DataInfo info() const override { return info_; }
  Collated collate(const std::vector<int64_t>& indices) const override;
  std::vector<int64_t> class_counts() const override;
  std::vector<DataPart> parts() const override;

 private:
  TensorMap fields_;
  DataInfo info_;
  int64_t size_ = 0;
};

// What collate functions share. DataError for an index outside [0, size).
void check_indices(const std::vector<int64_t>& indices, int64_t size);
at::Tensor ids_of(const std::vector<int64_t>& indices);
// Of int64 labels in [0, classes).
std::vector<int64_t> counts_of_classes(const at::Tensor& labels, int64_t classes);

// Opens the source that `options` describe; `what` ("data.train") stands in the error texts.
// An evaluation set takes the class names and the tokenizer of `train`, where it has any.
// DataError naming file, row and column for unusable data; ConfigError for unusable options.
std::unique_ptr<Dataset> open_dataset(const SourceOptions& options, const std::string& what,
                                      const DataInfo* train = nullptr);

// Images by name, without labels (all 0). DataError for a file that is not there.
std::unique_ptr<Dataset> open_image_files(const SourceOptions& options, const std::string& what,
                                          const std::vector<std::filesystem::path>& files);

}  // namespace tanren
