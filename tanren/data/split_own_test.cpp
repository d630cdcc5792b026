// data.split of a program's own datasets: which split keys they may give, and what is refused.
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/data/split.h"
#include "tanren/data/split_source.h"
#include "tanren/data/text/token_test_util.h"

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tanren {
namespace {

using testing::TemporaryFolder;
using testing::whole_of;

// What a test changes in PatientPictures.
struct PictureTraits {
  std::function<SplitKeys()> keys;     // null: the default ones
  std::vector<int64_t> counts;         // class_counts()
  int64_t subset_size = -1;            // of every subset; -1: there is none
  std::shared_ptr<bool> dropped = {};  // set by drop_split_keys()
  bool fails = false;                  // collate throws
};

// 40 pictures of a program, four of each patient. A sample holds the number of its row.
class PatientPictures : public Dataset {
 public:
  explicit PatientPictures(PictureTraits traits, int64_t size = 40)
      : traits_(std::move(traits)), size_(size) {}
  int64_t size() const override { return size_; }
  DataInfo info() const override { return {.input_shape = {1}, .outputs = 2}; }
  std::vector<int64_t> class_counts() const override { return traits_.counts; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    if (traits_.fails) throw std::runtime_error("no picture");
    Collated made;
    made.batch.ids = tanren::ids_of(indices);
    made.batch.fields.set("inputs", made.batch.ids.to(at::kFloat).unsqueeze(1));
    return made;
  }
  SplitKeys split_keys() const override {
    return traits_.keys ? traits_.keys() : Dataset::split_keys();
  }
  void drop_split_keys() override {
    if (traits_.dropped) *traits_.dropped = true;
  }
  std::unique_ptr<Dataset> subset(const std::vector<int64_t>&) const override {
    if (traits_.subset_size < 0) return nullptr;
    return std::make_unique<PatientPictures>(PictureTraits(), traits_.subset_size);
  }

 private:
  PictureTraits traits_;
  int64_t size_;
};

// The four pictures of a patient have the same hash. `mixed`: the fourth has another class.
SplitKeys keys_by_patient(bool with_classes, bool mixed) {
  SplitKeys keys;
  for (int64_t row = 0; row < 40; ++row) {
    const int64_t patient = row / 4;
    keys.hashes.push_back(split_hash(patient));
    if (with_classes) keys.classes.push_back(mixed && row % 4 == 3 ? 1 - patient % 2 : patient % 2);
  }
  return keys;
}

using Factory = DatasetRegistry::Factory;

SplitSource split_of(const Factory& factory, double share, SourceOptions options = {}) {
  DatasetRegistry kinds;
  kinds.add("own", factory);
  options.kind = "own";
  options.split = share;
  return open_split(kinds, std::move(options), "data.train");
}

SplitSource split_of(const PictureTraits& traits, double share = 0.25) {
  return split_of([&](const SourceOptions&, const std::string&,
                      const DataInfo*) { return std::make_unique<PatientPictures>(traits); },
                  share);
}

std::string refusal_of(const PictureTraits& traits) {
  return testing::error_of<DataError>([&] { split_of(traits); });
}

std::set<int64_t> source_rows(const Dataset& data) {
  std::set<int64_t> rows;
  for (int64_t i = 0; i < data.size(); ++i) rows.insert(data.source_row(i));
  return rows;
}

TEST(SplitOfAProgram, a_hash_with_two_classes_is_refused_and_without_classes_stays_whole) {
  TANREN_EXPECT_CONTAINS(
      refusal_of({.keys = [] { return keys_by_patient(true, true); }, .counts = {}}),
      "[data.train] samples 0 and 3 have one hash in split_keys and the classes 0 and 1, so each "
      "part would get one of them; leave the classes of split_keys empty");
  for (const bool with_classes : {false, true}) {
    const auto split =
        split_of({.keys = [&] { return keys_by_patient(with_classes, false); }, .counts = {}});
    const auto train = source_rows(*split.train), eval = source_rows(*split.eval);
    EXPECT_EQ(train.size() + eval.size(), 40U);
    EXPECT_EQ(eval.size() % 4, 0U);
    for (const int64_t row : eval) EXPECT_EQ(train.count(row / 4 * 4), 0U) << row;
  }
}

TEST(SplitOfAProgram, keys_of_another_number_of_samples_are_refused) {
  SplitKeys keys = keys_by_patient(true, false);
  keys.classes.pop_back();
  TANREN_EXPECT_CONTAINS(refusal_of({.keys = [&] { return keys; }, .counts = {}}),
                         "split_keys has 40 hashes and 39 classes for 40 samples");
}

TEST(SplitOfAProgram, a_subset_of_another_size_is_refused) {
  TANREN_EXPECT_CONTAINS(refusal_of({.keys = {}, .counts = {}, .subset_size = 40}),
                         " samples has 40; let it have the samples that are asked for");
}

TEST(SplitOfAProgram, classes_are_counted_in_each_part_if_the_keys_have_them) {
  const std::vector<int64_t> counts{20, 20};
  const auto known =
      split_of({.keys = [] { return keys_by_patient(true, false); }, .counts = counts});
  EXPECT_EQ(known.eval->class_counts(), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(known.train->class_counts(), (std::vector<int64_t>{16, 16}));
  TANREN_EXPECT_CONTAINS(known.how, "by hash, stratified over 2 classes)");

  const auto unknown =
      split_of({.keys = [] { return keys_by_patient(false, false); }, .counts = counts});
  EXPECT_TRUE(unknown.eval->class_counts().empty());
  TANREN_EXPECT_CONTAINS(unknown.how, "by hash, not by class: split_keys has no classes)");
}

TEST(SplitOfAProgram, keys_are_dropped_once_the_parts_are_known) {
  const auto dropped = std::make_shared<bool>(false);
  split_of({.keys = {}, .counts = {}, .dropped = dropped});
  EXPECT_TRUE(*dropped);
}

TEST(SplitOfAProgram, samples_are_told_by_their_number_in_the_source) {
  const auto split = split_of(PictureTraits());
  const auto rows = source_rows(*split.eval);
  EXPECT_EQ(static_cast<int64_t>(rows.size()), split.eval->size());
  const at::Tensor inputs = whole_of(*split.eval).batch["inputs"];
  for (int64_t i = 0; i < split.eval->size(); ++i) {
    EXPECT_EQ(split.eval->source_row(i), inputs[i].item<int64_t>());
  }
  const auto failing = split_of({.keys = {}, .counts = {}, .fails = true});
  const int64_t last = failing.eval->size() - 1;
  TANREN_EXPECT_CONTAINS(
      testing::error_of<DataError>([&] {
        collated(*failing.eval, {last, 0});
      }),
      fmt::format("collate of samples {}, {} failed: ", *rows.rbegin(), *rows.begin()));
}

// A factory that passes the options of the program's own kind on to the kind `inner`.
Factory handing_on_to(const std::string& inner, bool with_split = true) {
  return [=](SourceOptions options, const std::string& what, const DataInfo* train) {
    options.kind = inner;
    if (!with_split) options.split = 0;
    return open_dataset(options, what, train);
  };
}

TEST(SplitOfAProgram, options_that_it_hands_on_to_text_split_once) {
  const TemporaryFolder folder;
  const SourceOptions options{.path = folder.file("a.txt", std::string(1001, 'a')), .context = 10};
  const auto split = split_of(handing_on_to("text"), 0.25, options);
  EXPECT_EQ(split.train->size() + split.eval->size(), 100);
}

TEST(SplitOfAProgram, tables_that_it_opens_are_split_by_row_if_it_hands_on_the_split) {
  const TemporaryFolder folder;
  std::string numbers = "label,a\n", texts = "text,label\n";
  for (int i = 0; i < 60; ++i) {  // each row three times
    numbers += fmt::format("{},{}\n", i % 20 % 2, i % 20);
    texts += fmt::format("{},{}\n", std::string(1, static_cast<char>('a' + i % 20)), i % 20 % 2);
  }
  const SourceOptions csv{.path = folder.file("a.csv", numbers)};
  const SourceOptions table{.path = folder.file("b.csv", texts),
                            .context = 8,
                            .tokenizer = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt"};
  for (const auto& [kind, options] : {std::pair("csv", csv), std::pair("text_table", table)}) {
    for (const bool with_split : {true, false}) {
      const auto split = split_of(handing_on_to(kind, with_split), 0.2, options);
      EXPECT_EQ(split.train->size() + split.eval->size(), 60) << kind;
      TANREN_EXPECT_CONTAINS(split.how, "stratified over 2 classes");
      // Copies stay together if rows are hashed by content; by number they do not.
      const auto train = source_rows(*split.train);
      bool are_together = true;
      for (const int64_t row : source_rows(*split.eval)) {
        for (const int64_t copy : {row % 20, row % 20 + 20, row % 20 + 40}) {
          are_together = are_together && train.count(copy) == 0;
        }
      }
      EXPECT_EQ(are_together, with_split) << kind;
    }
  }
}

}  // namespace
}  // namespace tanren
