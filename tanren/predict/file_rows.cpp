// Rows of images and of tensors, and the choice among the kinds of rows.
#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/data_part.h"
#include "tanren/data/dataset.h"
#include "tanren/data/image/files.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/token_windows.h"
#include "tanren/predict/check_paths.h"
#include "tanren/predict/growing_file.h"
#include "tanren/predict/rows.h"
#include "tanren/run/kept_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// The files below `folder`, in depth, that are no images; hidden ones are left out.
std::vector<std::string> others_below(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    const bool is_folder = entry->is_directory(none);
    if (is_hidden(entry->path())) {
      if (is_folder) entry.disable_recursion_pending();
    } else if (!is_folder && !has_image_extension(entry->path())) {
      names.push_back(entry->path().lexically_relative(folder).string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Image files by path, sorted; the column is the path below the folder.
class ImageRows : public RowSource {
 public:
  ImageRows(const fs::path& source, bool skips, const fs::path& out) {
    columns_ = {"file"};
    std::error_code none;
    if (!fs::exists(source, none)) {
      throw DataError("[predict] there is no " + source.string() +
                      "; name an image or a folder of images");
    }
    if (!fs::is_directory(source, none)) {
      names_ = {source.string()};
      return;
    }
    folder_ = source;
    try {
      names_ = images_below(source, source);
      auto others = others_below(source);
      if (!out.empty() && lies_in(out, source)) leave_out(others, out);
      if (names_.empty()) {
        throw DataError("[predict] " + source.string() + " holds no images" +
                        (others.empty() ? "" : ", only " + first_few(others)) +
                        "; name a folder of JPEG or PNG files");
      }
      if (!others.empty() && !skips) {
        const char* const are = others.size() == 1 ? "is no image" : "are no images";
        throw DataError(
            fmt::format("[predict] {} holds {} that {} beside {}: {}; move them, or set "
                        "predict.broken = \"skip\"",
                        source.string(), counted(others.size(), "file"), are,
                        counted(names_.size(), "image"), first_few(others)));
      }
      names_.insert(names_.end(), others.begin(), others.end());
      std::sort(names_.begin(), names_.end());
    } catch (const fs::filesystem_error& error) {
      throw DataError("[predict] " + source.string() +
                      " cannot be listed: " + error.code().message() + "; check its rights");
    }
  }

  bool next(Row& row) override {
    row = {};
    if (at_ == names_.size()) return false;
    const std::string& name = names_[at_++];
    const fs::path file = folder_.empty() ? fs::path(name) : folder_ / name;
    struct stat facts = {};
    const bool is_there = ::stat(file.c_str(), &facts) == 0;
    print_.add(name);
    print_.add(is_there ? static_cast<int64_t>(facts.st_size) : -1);
    changed_.add(facts.st_mtim.tv_sec);
    changed_.add(facts.st_mtim.tv_nsec);
    times_ = changed_.value();
    row.place = file.string();
    row.cells = {{name}};
    row.sample.image_file = file.string();
    if (!has_image_extension(file) && !folder_.empty()) row.broken = "is no image";
    return true;
  }

 private:
  // Removes from `others` the files that this start writes or an earlier one has written.
  void leave_out(std::vector<std::string>& others, const fs::path& out) const {
    std::vector<fs::path> own = GrowingFile::parts_of(out);
    own.push_back(out);
    std::erase_if(others, [&](const std::string& name) {
      std::error_code none;
      return std::any_of(own.begin(), own.end(), [&](const fs::path& file) {
        return fs::equivalent(folder_ / name, file, none);
      });
    });
  }

  fs::path folder_;  // empty: one file
  Hash64 changed_;   // when the files were changed last
  std::vector<std::string> names_;
  size_t at_ = 0;
};

// The samples of a dataset by number, with all their fields but the labels of classes and values.
class TensorRows : public RowSource {
 public:
  TensorRows(std::unique_ptr<Dataset> data, std::string name, bool has_targets)
      : data_(std::move(data)),
        windows_(dynamic_cast<const TokenWindows*>(data_.get())),
        name_(std::move(name)),
        has_targets_(has_targets) {
    columns_ = {"row"};
  }

  bool next(Row& row) override {
    row = {};
    if (at_ == data_->size()) return false;
    const Batch one = data_->collate({at_}).batch;
    row.sample = sample_of(one);
    for (const auto& [field, tensor] : row.sample.tensors) {
      print_.add(static_cast<int64_t>(part_of(field, tensor).hash));
    }
    row.place = fmt::format("{}: row {}", name_, at_);
    row.cells = {{to_text(at_), true}};
    if (one.size() == 0) row.broken = "could not be read";
    if (windows_ != nullptr && has_targets_) row.positions = windows_->length(at_);
    ++at_;
    return true;
  }

  // If sizes vary, or if the first sample could not be read: the largest of up to 64 samples that
  // are spread over the data.
  Sample largest(const Sample& first) const override {
    const std::vector<int64_t> shape = data_->info().input_shape;
    const auto elements = [](const Sample& sample) {
      int64_t count = 0;
      for (const auto& [name, tensor] : sample.tensors) count += tensor.numel();
      return count;
    };
    const bool varies = std::find(shape.begin(), shape.end(), kAnySize) != shape.end();
    if (!varies && elements(first) > 0) return first;
    const int64_t looks = std::min<int64_t>(data_->size(), 64);
    Sample most = first;
    for (int64_t i = 0; i < looks; ++i) {
      try {
        Sample one = sample_of(data_->collate({i * data_->size() / looks}).batch);
        if (elements(one) > elements(most)) most = std::move(one);
      } catch (const std::exception&) {  // reported when its row is read
      }
    }
    return most;
  }

 private:
  Sample sample_of(const Batch& one) const {
    Sample sample;
    for (const auto& [field, tensor] : one.fields) {
      if (field != "labels" || has_targets_) sample.tensors.set(field, tensor);
    }
    return sample;
  }
  std::unique_ptr<Dataset> data_;
  const TokenWindows* windows_;  // data_ itself; null: samples are not padded
  std::string name_;
  bool has_targets_;
  int64_t at_ = 0;
};

// Shapes must be those of training; the number of tokens may be smaller.
void check_alike(const DataInfo& trained, const DataInfo& given, const std::string& name) {
  const auto text = [](const std::vector<int64_t>& shape) {
    std::vector<std::string> sizes;
    for (const int64_t size : shape) sizes.push_back(size == kAnySize ? "any" : to_text(size));
    return "[" + join(sizes) + "]";
  };
  const auto &ours = trained.input_shape, &theirs = given.input_shape;
  const bool tokens = trained.vocab_size > 0;
  const bool alike =
      ours.size() == theirs.size() &&
      std::equal(ours.begin(), ours.end(), theirs.begin(), [&](int64_t a, int64_t b) {
        return a == b || a == kAnySize || (tokens && b <= a);
      });
  if (!alike) {
    throw DataError(
        fmt::format("[predict] {}: a sample is {}, and the model was trained on {}; "
                    "give it samples of that shape",
                    name, text(theirs), text(ours)));
  }
  if (given.vocab_size <= trained.vocab_size && (given.vocab_size > 0) == tokens) return;
  throw DataError(
      fmt::format("[predict] {} holds tokens up to {}, and the model knows {}; use the "
                  "tokenizer that it was trained with",
                  name, given.vocab_size - 1, trained.vocab_size));
}

}  // namespace

std::unique_ptr<RowSource> open_image_rows(const fs::path& source, bool skips,
                                           const fs::path& out) {
  return std::make_unique<ImageRows>(source, skips, out);
}

std::unique_ptr<RowSource> open_tensor_rows(const fs::path& source, const RunConfig& config,
                                            const DataInfo& info, const DatasetRegistry& kinds,
                                            AnswerKind answers) {
  SourceOptions options = config.data.eval;
  options.path = source.string();
  options.encoding = config.data.encoding;
  options.ignores_labels = answers != AnswerKind::tokens;
  read_as_text(options, info.tokenizer != nullptr, "predict");
  options.only_classes.clear();  // rows of any class, or without a label, count
  auto data = kinds.open(options, "predict", &info);
  check_alike(info, data->info(), source.string());
  return std::make_unique<TensorRows>(std::move(data), source.string(),
                                      answers == AnswerKind::tokens);
}

std::string ending_of(const fs::path& file) {
  std::string end = file.extension().string();
  for (char& c : end) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return end;
}

namespace {

// Refuses tables of unsupported kinds, which would otherwise be read as a text with a sample a
// line.
void refuse_other_tables(const fs::path& source) {
  static constexpr std::string_view kOthers[] = {".json",    ".tab", ".psv",  ".parquet", ".arrow",
                                                 ".feather", ".xls", ".xlsx", ".ods",     ".xml",
                                                 ".gz",      ".bz2", ".xz",   ".zst",     ".zip"};
  const std::string end = ending_of(source);
  if (std::find(std::begin(kOthers), std::end(kOthers), end) == std::end(kOthers)) return;
  throw DataError("[predict] " + source.string() + ": tables that end in " + end +
                  " are not read; write it as .csv, .tsv or .jsonl (an object a line)");
}

}  // namespace

std::unique_ptr<RowSource> open_rows(const fs::path& source, const RunConfig& config,
                                     const DataInfo& info, const DatasetRegistry& kinds,
                                     AnswerKind answers, const RowOptions& options) {
  const std::string& kind = config.data.eval.kind;
  if (kind == "synthetic" || kind == "pairs") {
    throw ConfigError("[predict] the data of this model are of kind " + kind +
                      ", which no file without targets gives; evaluate it with tanren eval");
  }
  const bool is_table = kind == "text_table" || kind == "csv";
  if (is_table) refuse_other_tables(source);
  const std::string end = ending_of(source);
  if (is_table && (end == ".jsonl" || end == ".ndjson")) {
    return open_json_rows(source, config, info, options.stop);
  }
  const bool is_csv = end == ".csv" || end == ".tsv";
  if (kind == "csv" || (kind == "text_table" && is_csv)) {
    return open_table_rows(source, config, info, options.stop);
  }
  if (kind == "text_table") {
    if (!config.data.eval.text_pair.empty()) {
      throw DataError(
          "[predict] this model reads pairs of texts, and a line holds one; give a "
          ".csv, .tsv or .jsonl with the columns " +
          config.data.eval.text + " and " + config.data.eval.text_pair);
    }
    return open_line_rows(source, config, options.stop);
  }
  if (is_pipe(source)) {
    throw ConfigError("[predict] " + (source == "-" ? "standard input" : source.string()) +
                      " is read as texts or tables, and the data of this model are of kind " +
                      kind + "; name a file or folder");
  }
  if (kind == "images") {
    return open_image_rows(source, config.predict.broken == "skip", options.out);
  }
  std::error_code none;
  if (!options.out.empty() && fs::is_directory(source, none) && lies_in(options.out, source)) {
    throw ConfigError("[predict] " + options.out.string() + " lies in " + source.string() +
                      ", whose files are read; name a file outside of it with --out");
  }
  return open_tensor_rows(source, config, info, kinds, answers);
}

}  // namespace tanren
