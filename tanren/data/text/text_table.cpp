#include "tanren/data/text/text_table.h"

#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/split.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <future>
#include <optional>
#include <set>
#include <thread>

namespace tanren {

namespace {

constexpr int64_t kWidthStep = 8;    // so that widths of batches repeat, and vectors are full
constexpr int64_t kRowsATask = 256;  // tokenised in one task

template <typename T>
std::optional<T> number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

EncodedTexts encode_part(const TextRow* row, const TextRow* last, const Tokenizer& tokenizer,
                         bool pairs, int64_t context) {
  EncodedTexts texts;
  for (; row != last; ++row) {
    std::vector<int32_t> types;
    const auto encoded = [&](int64_t longest) {
      return pairs ? tokenizer.encode_pair(row->text, row->pair, longest, &types)
                   : tokenizer.encode_framed(row->text, longest);
    };
    TokenIds ids = encoded(0);
    if (static_cast<int64_t>(ids.size()) > context) {
      ids = encoded(context);
      ++texts.cut;
    }
    texts.ids.insert(texts.ids.end(), ids.begin(), ids.end());
    texts.ends.push_back(static_cast<int64_t>(texts.ids.size()));
    if (pairs) texts.firsts.push_back(std::count(types.begin(), types.end(), 0));
  }
  return texts;
}

void append(EncodedTexts& all, const EncodedTexts& part) {
  const auto before = static_cast<int64_t>(all.ids.size());
  all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
  for (const int64_t end : part.ends) all.ends.push_back(before + end);
  all.firsts.insert(all.firsts.end(), part.firsts.begin(), part.firsts.end());
  all.cut += part.cut;
}

// Labels → classes with or without names, or values.
class Labels {
 public:
  Labels(const SourceOptions& options, const std::string& what, const DataInfo* train)
      : options_(options), what_(what), train_(train) {}

  at::Tensor read(const std::vector<TextRow>& rows, DataInfo& info) const {
    info.class_labels = options_.label_type == "class";
    if (!info.class_labels) return values(rows, info);
    info.class_names = names_for(rows);
    at::Tensor labels = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
    int64_t* out = labels.mutable_data_ptr<int64_t>();
    int64_t largest = 0;
    for (const auto& row : rows) {
      *out = class_of(row, info.class_names);
      largest = std::max(largest, *out++);
    }
    const auto named = static_cast<int64_t>(info.class_names.size());
    info.outputs = named > 0 ? named : options_.classes > 0 ? options_.classes : largest + 1;
    return labels;
  }

 private:
  [[noreturn]] void fail(const TextRow& row, const std::string& problem) const {
    throw DataError(fmt::format("[{}] {}:{}: {}", what_, options_.path, row.line, problem));
  }

  at::Tensor values(const std::vector<TextRow>& rows, DataInfo& info) const {
    info.outputs = 1;
    at::Tensor labels = at::empty({static_cast<int64_t>(rows.size())}, at::kFloat);
    auto* out = labels.mutable_data_ptr<float>();
    for (const auto& row : rows) {
      const auto value = number<double>(row.label);
      const auto narrow = static_cast<float>(value.value_or(NAN));
      if (!std::isfinite(narrow)) {
        fail(row, "label \"" + row.label.substr(0, 40) + "\" is no number; fix it, or set " +
                      what_ + ".label_type = \"class\"");
      }
      *out++ = narrow;
    }
    return labels;
  }

  // The configured class names or, in an evaluation, training's. Otherwise the names of the rows,
  // sorted, or none if all labels are whole numbers.
  std::vector<std::string> names_for(const std::vector<TextRow>& rows) const {
    if (!options_.class_names.empty()) return options_.class_names;
    if (train_ != nullptr) return train_->class_names;
    const auto is_number = [](const TextRow& row) { return number<int64_t>(row.label); };
    if (std::all_of(rows.begin(), rows.end(), is_number)) return {};
    std::set<std::string> names;
    for (const auto& row : rows) names.insert(row.label);
    if (static_cast<int64_t>(names.size()) > std::max<int64_t>(1000, options_.classes)) {
      fail(rows.front(), fmt::format("the label column has {} different names; is it the right "
                                     "one? If so, list them in {}.class_names",
                                     names.size(), what_));
    }
    return {names.begin(), names.end()};
  }

  int64_t class_of(const TextRow& row, const std::vector<std::string>& names) const {
    const auto found = std::find(names.begin(), names.end(), row.label);
    if (found != names.end()) return found - names.begin();
    const auto named = static_cast<int64_t>(names.size());
    if (named > 0) {
      std::vector<std::string> shown(names.begin(),
                                     names.begin() + std::min<std::ptrdiff_t>(8, named));
      if (named > 8) shown.emplace_back("…");
      fail(row,
           fmt::format("label \"{}\" is none of the classes {}{}; fix it", row.label.substr(0, 40),
                       join(shown), train_ != nullptr ? " that data.train has" : ""));
    }
    const auto value = number<int64_t>(row.label);
    if (!value) {
      fail(row, "label \"" + row.label.substr(0, 40) +
                    "\" is no class (0, 1, …), and data.train has no names of classes; fix it");
    }
    const int64_t known = train_ != nullptr ? train_->outputs : 0;
    const int64_t bound =
        options_.classes > 0 ? options_.classes : std::max(known, kMaxUnannouncedClass);
    if (*value < 0 || *value >= bound) {
      fail(row,
           fmt::format("label {} is out of range [0, {}); fix it or set {}{}.classes", row.label,
                       to_text(bound), train_ != nullptr ? "data.train.classes and " : "", what_));
    }
    return *value;
  }

  const SourceOptions& options_;
  const std::string& what_;
  const DataInfo* train_;
};

class TextTable : public Dataset {
 public:
  TextTable(const SourceOptions& options, EncodedTexts texts, at::Tensor labels, DataInfo info,
            int64_t pad_token, std::vector<uint64_t> hashes)
      : options_(options),
        texts_(std::move(texts)),
        labels_(std::move(labels)),
        info_(std::move(info)),
        pad_token_(pad_token),
        hashes_(std::move(hashes)) {}

  int64_t size() const override { return texts_.size(); }
  DataInfo info() const override { return info_; }
  std::vector<int64_t> class_counts() const override {
    return info_.class_labels ? counts_of_classes(labels_, info_.outputs) : std::vector<int64_t>();
  }

  SplitKeys split_keys() const override {
    SplitKeys keys = hashes_.empty() ? Dataset::split_keys() : SplitKeys{hashes_, {}};
    if (info_.class_labels) keys.classes = numbers_of(labels_);
    return keys;
  }
  void drop_split_keys() override { hashes_ = std::vector<uint64_t>(); }

  Collated collate(const std::vector<int64_t>& indices) const override {
    check_indices(indices, size());
    Collated collated;
    collated.batch.fields = padded_fields(texts_, indices, options_, pad_token_);
    collated.batch.fields.set("labels", labels_of(indices));
    collated.batch.ids = ids_of(indices);
    collated.counts["samples"] = static_cast<double>(indices.size());
    return collated;
  }

  std::vector<DataPart> parts() const override {
    const auto bytes = [](const auto& numbers) {
      return std::string_view(reinterpret_cast<const char*>(numbers.data()),
                              numbers.size() * sizeof numbers[0]);
    };
    Hash64 texts;
    texts.add(bytes(texts_.ids));
    texts.add(bytes(texts_.ends));
    texts.add(bytes(texts_.firsts));
    return {{"texts", texts.value()},
            part_of("labels", labels_),
            part_of("class names", info_.class_names)};
  }

 private:
  // Plain loops: loader threads must not open OpenMP teams.
  at::Tensor labels_of(const std::vector<int64_t>& indices) const {
    at::Tensor labels = at::empty({static_cast<int64_t>(indices.size())}, labels_.options());
    const auto gather = [&](const auto* from, auto* to) {
      for (const int64_t index : indices) *to++ = from[index];
    };
    if (info_.class_labels) {
      gather(labels_.const_data_ptr<int64_t>(), labels.mutable_data_ptr<int64_t>());
    } else {
      gather(labels_.const_data_ptr<float>(), labels.mutable_data_ptr<float>());
    }
    return labels;
  }

  SourceOptions options_;
  EncodedTexts texts_;
  at::Tensor labels_;
  DataInfo info_;
  int64_t pad_token_;
  std::vector<uint64_t> hashes_;  // of the rows, for data.split; else empty
};

// The hash of each row covers its text, second text and label, each after its length.
std::vector<uint64_t> text_row_hashes(const std::vector<TextRow>& rows) {
  std::vector<uint64_t> hashes;
  for (const TextRow& row : rows) {
    std::string all;
    for (const std::string* cell : {&row.text, &row.pair, &row.label}) {
      all += to_text(static_cast<int64_t>(cell->size())) + ":" + *cell;
    }
    hashes.push_back(split_hash(all));
  }
  return hashes;
}

}  // namespace

int64_t pad_token_of(const Tokenizer& tokenizer) {
  for (const char* token : {"[PAD]", "<pad>"}) {
    if (const auto id = tokenizer.id_of(token)) return *id;
  }
  return 0;
}

EncodedTexts encode_texts(const std::vector<TextRow>& rows, const Tokenizer& tokenizer,
                          const SourceOptions& options, const std::string& what) {
  const bool pairs = !options.text_pair.empty();
  const int64_t room = tokenizer.frame_size(pairs);
  if (options.context <= room) {
    throw ConfigError(
        fmt::format("[{}] context {} leaves no token for the text beside the {} that the tokenizer "
                    "puts around it; raise it",
                    what, to_text(options.context), to_text(room)));
  }
  const auto count = static_cast<int64_t>(rows.size());
  const bool parallel = count > kRowsATask && std::thread::hardware_concurrency() > 1;
  const auto policy = parallel ? std::launch::async : std::launch::deferred;
  const int64_t at_once = parallel ? std::thread::hardware_concurrency() : 1;
  EncodedTexts all;
  for (int64_t begin = 0; begin < count;) {
    std::vector<std::future<EncodedTexts>> work;
    for (int64_t i = 0; i < at_once && begin < count; ++i, begin += kRowsATask) {
      const TextRow* first = rows.data() + begin;
      const TextRow* last = rows.data() + std::min(begin + kRowsATask, count);
      work.push_back(std::async(policy, [=, &tokenizer] {
        return encode_part(first, last, tokenizer, pairs, options.context);
      }));
    }
    for (auto& part : work) append(all, part.get());
  }
  for (int64_t i = 0; i < count; ++i) {
    if (all.end(i) > all.begin(i)) continue;
    throw DataError(fmt::format("[{}] {}:{}: the text holds no token; fill it or drop the row",
                                what, options.path, rows[static_cast<size_t>(i)].line));
  }
  return all;
}

TensorMap padded_fields(const EncodedTexts& texts, const std::vector<int64_t>& indices,
                        const SourceOptions& options, int64_t pad_token) {
  int64_t width = options.context;
  if (options.padding == "longest") {
    int64_t longest = 1;
    for (const int64_t i : indices) longest = std::max(longest, texts.end(i) - texts.begin(i));
    width = std::min(width, (longest + kWidthStep - 1) / kWidthStep * kWidthStep);
  }
  const auto rows = static_cast<int64_t>(indices.size());
  const auto filled = [&](int64_t value) {
    at::Tensor tensor = at::empty({rows, width}, at::kLong);
    std::fill_n(tensor.mutable_data_ptr<int64_t>(), tensor.numel(), value);
    return tensor;
  };
  TensorMap fields;
  fields.set("inputs", filled(pad_token));
  fields.set("attention_mask", filled(0));
  if (!texts.firsts.empty()) fields.set("token_types", filled(0));
  auto* ids = fields.at("inputs").mutable_data_ptr<int64_t>();
  auto* mask = fields.at("attention_mask").mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample = indices[static_cast<size_t>(row)];
    const int64_t length = texts.end(sample) - texts.begin(sample);
    std::copy_n(texts.ids.begin() + texts.begin(sample), length, ids + row * width);
    std::fill_n(mask + row * width, length, 1);
    if (texts.firsts.empty()) continue;
    auto* types = fields.at("token_types").mutable_data_ptr<int64_t>() + row * width;
    const int64_t first = texts.firsts[static_cast<size_t>(sample)];
    std::fill(types + first, types + length, 1);
  }
  return fields;
}

std::unique_ptr<Dataset> open_text_table(const SourceOptions& options, const std::string& what,
                                         const DataInfo* train) {
  DataInfo info;
  const bool has_own = !options.tokenizer.empty();
  if (!has_own && (train == nullptr || train->tokenizer == nullptr)) {
    throw ConfigError("[" + what + "] tokenizer is missing; name its file or folder");
  }
  info.tokenizer =
      has_own ? std::make_shared<const TokenizerFiles>(read_tokenizer_files(options.tokenizer))
              : train->tokenizer;
  const auto tokenizer =
      has_own ? load_tokenizer(options.tokenizer) : load_tokenizer(*info.tokenizer, "tokenizer");
  const auto rows =
      read_text_rows(options.path, {options.text, options.text_pair, options.label}, what, options);
  at::Tensor labels = Labels(options, what, train).read(rows, info);
  EncodedTexts texts = encode_texts(rows, *tokenizer, options, what);
  if (texts.cut > 0) {
    log(fmt::format("[{}] {} of {} texts are longer than context {} and were cut", what,
                    to_text(texts.cut), texts.size(), to_text(options.context)));
  }
  info.input_shape = {options.context};
  info.vocab_size = tokenizer->vocab_size();
  info.token_types = options.text_pair.empty() ? 0 : 2;
  return std::make_unique<TextTable>(
      options, std::move(texts), std::move(labels), std::move(info), pad_token_of(*tokenizer),
      options.split > 0 ? text_row_hashes(rows) : std::vector<uint64_t>());
}

}  // namespace tanren
