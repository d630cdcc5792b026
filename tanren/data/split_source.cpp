#include "tanren/data/split_source.h"

#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/data/split.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

namespace tanren {

namespace {

// The samples `rows` of the dataset `whole`, numbered from 0. Both parts of a split share `whole`.
class SubsetDataset : public Dataset {
 public:
  // `rows` must be in rising order. `counts`: the number of these rows in each class.
  SubsetDataset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> rows,
                std::vector<int64_t> counts)
      : whole_(std::move(whole)), rows_(std::move(rows)), counts_(std::move(counts)) {}

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  DataInfo info() const override { return whole_->info(); }
  std::vector<int64_t> class_counts() const override { return counts_; }
  std::string sample_name(int64_t index) const override { return whole_->sample_name(row(index)); }
  int64_t source_row(int64_t index) const override { return whole_->source_row(row(index)); }
  std::string remarks() const override { return whole_->remarks(); }

  Collated collate(const std::vector<int64_t>& indices) const override {
    return renumbered(whole_->collate(rows_of(indices)));
  }
  Collated collate_training(const std::vector<int64_t>& indices, const Draw& draw) const override {
    return renumbered(whole_->collate_training(rows_of(indices), draw));
  }

  std::vector<DataPart> parts() const override {
    std::vector<DataPart> parts = whole_->parts();
    Hash64 rows;
    for (const int64_t row : rows_) rows.add(row);
    parts.push_back({"choice of rows", rows.value()});
    return parts;
  }

 private:
  int64_t row(int64_t index) const { return rows_.at(static_cast<size_t>(index)); }

  std::vector<int64_t> rows_of(const std::vector<int64_t>& indices) const {
    check_indices(indices, size());
    std::vector<int64_t> rows;
    rows.reserve(indices.size());
    for (const int64_t index : indices) rows.push_back(row(index));
    return rows;
  }

  // Replaces the ids of a batch of `whole_` by numbers of this dataset. Ids that collated() will
  // refuse because of their form stay unchanged.
  Collated renumbered(Collated made) const {
    const at::Tensor ids = made.batch.ids;
    const bool are_numbers =
        ids.defined() && ids.dim() == 1 && ids.scalar_type() == at::kLong && ids.is_cpu();
    if (!are_numbers) return made;
    std::vector<int64_t> numbers;
    for (const int64_t id : numbers_of(ids.contiguous())) {
      const auto found = std::lower_bound(rows_.begin(), rows_.end(), id);
      if (found == rows_.end() || *found != id) {
        throw DataError(
            fmt::format("[data] collate gave sample {}, which is not in this part of data.split; "
                        "give the samples that are asked for",
                        to_text(id)));
      }
      numbers.push_back(found - rows_.begin());
    }
    made.batch.ids = ids_of(numbers);
    return made;
  }

  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> rows_;
  std::vector<int64_t> counts_;
};

// The number of `rows` in each class 0, 1, …, outputs - 1; empty if `classes` is empty.
std::vector<int64_t> counts_among(const std::vector<int64_t>& rows,
                                  const std::vector<int64_t>& classes, int64_t outputs) {
  if (classes.empty()) return {};
  std::vector<int64_t> counts(static_cast<size_t>(std::max<int64_t>(outputs, 0)));
  for (const int64_t row : rows) {
    const int64_t label = classes[static_cast<size_t>(row)];
    if (label >= 0 && label < outputs) ++counts[static_cast<size_t>(label)];
  }
  return counts;
}

std::unique_ptr<Dataset> part_of_whole(const std::shared_ptr<const Dataset>& whole,
                                       std::vector<int64_t> rows,
                                       const std::vector<int64_t>& classes,
                                       const std::string& what) {
  if (auto own = whole->subset(rows)) {
    if (own->size() == std::ssize(rows)) return own;
    throw DataError(
        fmt::format("[{}] subset of {} samples has {}; let it have the samples that are asked for",
                    what, rows.size(), to_text(own->size())));
  }
  std::vector<int64_t> counts = counts_among(rows, classes, whole->info().outputs);
  return std::make_unique<SubsetDataset>(whole, std::move(rows), std::move(counts));
}

// What the samples of a kind are called.
std::string_view samples_word(const std::string& kind) {
  if (kind == "images") return "images";
  if (kind == "pairs") return "pairs";
  const bool is_table = kind == "csv" || kind == "text_table" || kind == "tensors";
  return is_table ? "rows" : "samples";
}

std::string share_text(const Dataset& train, const Dataset& eval, std::string_view word,
                       const std::string& by) {
  const int64_t all = train.size() + eval.size();
  return fmt::format("evaluation gets {} of {} {} ({:.1f} %, {})", eval.size(), all, word,
                     100.0 * static_cast<double>(eval.size()) / static_cast<double>(all), by);
}

SplitSource open_stream(const DatasetRegistry& registry, SourceOptions source,
                        const std::string& what) {
  source.stream_split = std::exchange(source.split, 0);
  SplitSource split;
  split.train = registry.open(source, what);
  const DataInfo info = split.train->info();
  source.takes_eval_part = true;
  split.eval = registry.open(source, what, &info);
  split.how = share_text(*split.train, *split.eval, "windows",
                         "whole files by the hash of their names; of a single file its end");
  return split;
}

// `is_own`: the kind is a program's own. The library's kinds need no check of the classes, because
// their hashes cover the class or the name of its folder.
void check_keys(const SplitKeys& keys, int64_t size, bool is_own, const std::string& what) {
  const bool fits =
      std::ssize(keys.hashes) == size && (keys.classes.empty() || std::ssize(keys.classes) == size);
  if (!fits) {
    throw DataError(fmt::format(
        "[{}] split_keys has {} hashes and {} classes for {} samples; give each sample a hash, and "
        "each or none a class",
        what, keys.hashes.size(), keys.classes.size(), to_text(size)));
  }
  if (!is_own) return;
  const auto found = rows_of_two_classes(keys.hashes, keys.classes);
  if (!found) return;
  const auto [one, other] = *found;
  throw DataError(fmt::format(
      "[{}] samples {} and {} have one hash in split_keys and the classes {} and {}, so "
      "each part would get one of them; leave the classes of split_keys empty",
      what, to_text(one), to_text(other), keys.classes[static_cast<size_t>(one)],
      keys.classes[static_cast<size_t>(other)]));
}

// A text for the plan that says how the rows were chosen.
std::string by_what(const Dataset& whole, const SplitKeys& keys) {
  const auto classes = std::set(keys.classes.begin(), keys.classes.end()).size();
  if (classes > 0) {
    return fmt::format("by hash, stratified over {} {}", classes,
                       classes == 1 ? "class" : "classes");
  }
  const bool counts = !whole.class_counts().empty();
  return counts ? "by hash, not by class: split_keys has no classes" : "by hash";
}

}  // namespace

SplitSource open_split(const DatasetRegistry& registry, SourceOptions source,
                       const std::string& what) {
  const DatasetKind* const kind = dataset_kind(source.kind);
  if (kind != nullptr && kind->is_stream) return open_stream(registry, std::move(source), what);

  const std::shared_ptr<Dataset> whole = registry.open(source, what);
  const SplitKeys keys = whole->split_keys();
  whole->drop_split_keys();
  check_keys(keys, whole->size(), /*is_own=*/kind == nullptr, what);
  SplitRows rows = split_rows(keys.hashes, keys.classes, source.split);
  const std::string_view word = samples_word(source.kind);
  if (rows.eval.empty()) {
    const char* const why = whole->size() == 1     ? "there is no other"
                            : keys.classes.empty() ? "all are equal"
                                                   : "no class has two different ones";
    throw DataError(
        fmt::format("[{}] data.split = {} finds none of {} {} for evaluation: {}; give more data, "
                    "or drop it and give [data.eval]",
                    what, to_text(source.split), to_text(whole->size()), word, why));
  }
  SplitSource split;
  split.train = part_of_whole(whole, std::move(rows.train), keys.classes, what);
  split.eval = part_of_whole(whole, std::move(rows.eval), keys.classes, what);
  split.how = share_text(*split.train, *split.eval, word, by_what(*whole, keys));
  return split;
}

}  // namespace tanren
