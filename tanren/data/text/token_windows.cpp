#include "tanren/data/text/token_windows.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/base/text.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace tanren {

namespace {

constexpr int64_t kIgnored = -100;
// So many bytes before a target show whether a word continues into it. They contain a whole
// character, even if they begin and end within one.
constexpr size_t kLookBack = 8;
constexpr int64_t kMostTokensBack = 64;

}  // namespace

void cut_to_part(TokenPiece& piece, double begin, double end, int64_t width) {
  const auto size = static_cast<double>(piece.size);
  const auto from = static_cast<int64_t>(begin * size), to = static_cast<int64_t>(end * size);
  piece.data += from * width;
  piece.first += from;
  piece.size = to - from;
}

TokenWindows::TokenWindows(TokenStream stream, int64_t context, int64_t stride, std::string what)
    : stream_(std::move(stream)),
      context_(context),
      stride_(stride > 0 ? stride : context),
      what_(std::move(what)) {
  std::erase_if(stream_.pieces, [](const TokenPiece& piece) { return piece.size == 0; });
  int64_t total = 0;
  for (const auto& piece : stream_.pieces) {
    starts_.push_back(total);
    total += piece.size;
  }
  starts_.push_back(total);
  if (total < context_ + 1) {
    throw DataError(fmt::format(
        "[{}] there {} {}{}, too few for one window: context = {} needs {}; lower "
        "{}.context{} or give more data",
        what_, total == 1 ? "is" : "are", counted(total, "token"), stream_.part, to_text(context_),
        to_text(context_ + 1), what_.starts_with("data.") ? what_ : "data.eval",
        stream_.part.empty() ? "" : ", change data.split"));
  }
  const int64_t beyond = total - 1 - context_;  // targets after the first window's
  size_ = 1 + (beyond + stride_ - 1) / stride_;
}

DataInfo TokenWindows::info() const {
  return {.input_shape = {context_},
          .outputs = stream_.vocab_size,
          .class_labels = true,
          .vocab_size = stream_.vocab_size,
          .tokenizer = stream_.tokenizer};
}

Collated TokenWindows::collate(const std::vector<int64_t>& indices) const {
  return make(indices, /*each_target_once=*/true);
}

Collated TokenWindows::collate_training(const std::vector<int64_t>& indices, const Draw&) const {
  return make(indices, /*each_target_once=*/false);
}

std::vector<DataPart> TokenWindows::parts() const {
  std::vector<DataFile> files;
  Hash64 contents;
  bool any_in_memory = false;
  for (const auto& piece : stream_.pieces) {
    files.push_back(piece.file);
    if (!piece.in_memory) continue;
    any_in_memory = true;
    contents.add(
        std::string_view(piece.data, static_cast<size_t>(piece.size * width_of(stream_.type))));
  }
  std::vector<DataPart> parts = parts_of(files);
  if (any_in_memory) parts.push_back({"contents", contents.value()});
  parts.insert(parts.end(), stream_.prints.begin(), stream_.prints.end());
  return parts;
}

Collated TokenWindows::make(const std::vector<int64_t>& indices, bool each_target_once) const {
  check_indices(indices, size_);
  const auto count = static_cast<int64_t>(indices.size());
  at::Tensor inputs = at::empty({count, context_}, at::kLong);
  at::Tensor labels = at::empty({count, context_}, at::kLong);
  auto* in = inputs.mutable_data_ptr<int64_t>();
  auto* out = labels.mutable_data_ptr<int64_t>();
  int64_t tokens = 0;
  Text text;
  const bool has_text = each_target_once && stream_.texts != nullptr;
  for (const int64_t index : indices) {
    tokens += fill(index, each_target_once, in, out);
    if (has_text) {
      const Text of_row = text_of(index * stride_, in, out);
      text.bytes += of_row.bytes;
      text.words += of_row.words;
    }
    in += context_;
    out += context_;
  }
  Collated collated;
  collated.batch.fields.set("inputs", std::move(inputs));
  collated.batch.fields.set("labels", std::move(labels));
  collated.batch.ids = ids_of(indices);
  collated.counts = {{"samples", static_cast<double>(count)},
                     {"tokens", static_cast<double>(tokens)}};
  if (has_text) {
    collated.counts["bytes"] = static_cast<double>(text.bytes);
    collated.counts["words"] = static_cast<double>(text.words);
  }
  return collated;
}

int64_t TokenWindows::length(int64_t window) const {
  return std::min(context_, starts_.back() - 1 - window * stride_);
}

int64_t TokenWindows::fill(int64_t window, bool each_target_once, int64_t* inputs,
                           int64_t* labels) const {
  const int64_t begin = window * stride_;
  const int64_t length = this->length(window);
  copy(begin, begin + length + 1, inputs, labels);
  std::fill(inputs + length, inputs + context_, 0);
  std::fill(labels + length, labels + context_, kIgnored);

  int64_t counted = length;
  const auto ignore = [&](int64_t at) {
    counted -= labels[at] != kIgnored ? 1 : 0;
    labels[at] = kIgnored;
  };
  // The first token of a piece is not a target: it does not follow the piece before.
  auto start = std::upper_bound(starts_.begin(), starts_.end(), begin);
  for (; start != starts_.end() && *start <= begin + length; ++start) ignore(*start - begin - 1);
  if (stream_.document_end >= 0) {
    for (int64_t i = 0; i < length; ++i) {
      if (inputs[i] == stream_.document_end) ignore(i);
    }
  }
  if (each_target_once && window > 0) {
    for (int64_t i = 0; i < context_ - stride_; ++i) ignore(i);
  }
  return counted;
}

int64_t TokenWindows::id_at(int64_t at) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), at);
  const auto index = static_cast<size_t>(after - starts_.begin()) - 1;
  const char* source = stream_.pieces[index].data + (at - starts_[index]) * width_of(stream_.type);
  int64_t id = 0;
  widen_tokens(stream_.type, source, 1, &id);
  return id;
}

bool TokenWindows::begins_document(int64_t at) const {
  if (std::binary_search(starts_.begin(), starts_.end(), at)) return true;
  const int64_t before = id_at(at - 1);
  return before == stream_.document_end || stream_.texts->is_special(before);
}

TokenWindows::Text TokenWindows::text_of(int64_t begin, const int64_t* inputs,
                                         const int64_t* labels) const {
  int64_t first = 0, last = context_;  // targets of the row
  while (first < context_ && labels[first] == kIgnored) ++first;
  while (last > first && labels[last - 1] == kIgnored) --last;
  if (first == last) return {};
  const auto id_of = [&](int64_t at) {
    const bool is_input = at >= begin && at < begin + last;
    return is_input ? inputs[at - begin] : id_at(at);
  };
  const auto text_at = [&](int64_t at) {
    const int64_t id = id_of(at);
    return id == stream_.document_end ? std::string_view() : stream_.texts->text(id);
  };
  int64_t at = begin + 1 + first;
  size_t seen = 0;
  for (int64_t i = 0; i < kMostTokensBack && seen < kLookBack && !begins_document(at); ++i) {
    seen += text_at(--at).size();
  }
  Text text;
  WordCounter words;
  const auto add = [&](bool is_target) {
    if (begins_document(at)) words.begin_text();
    const std::string_view token = text_at(at++);
    words.add(token, is_target);
    if (is_target) text.bytes += static_cast<int64_t>(token.size());
  };
  while (at < begin + 1 + last) add(at > begin + first && labels[at - begin - 1] != kIgnored);
  while (words.is_within_character() && at < starts_.back() && !begins_document(at)) add(false);
  text.words = words.words();
  return text;
}

void TokenWindows::copy(int64_t begin, int64_t end, int64_t* inputs, int64_t* labels) const {
  const int64_t width = width_of(stream_.type);
  const bool all_fit = width < 4 && stream_.vocab_size >= int64_t{1} << (8 * width);
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), begin);
  auto index = static_cast<size_t>(after - starts_.begin()) - 1;
  for (int64_t at = begin; at < end; ++index) {
    const TokenPiece& piece = stream_.pieces[index];
    const int64_t from = at - starts_[index];
    const int64_t count = std::min(end - at, piece.size - from);
    const char* source = piece.data + from * width;
    if (!all_fit &&
        largest_token(stream_.type, source, count) >= static_cast<uint64_t>(stream_.vocab_size)) {
      refuse(piece, from, from + count);
    }
    // The row's last token is a label only, its first an input only.
    const int64_t last = at + count == end ? 1 : 0, first = at == begin ? 1 : 0;
    widen_tokens(stream_.type, source, count - last, inputs + (at - begin));
    widen_tokens(stream_.type, source + first * width, count - first,
                 labels + (at + first - begin - 1));
    at += count;
  }
}

void TokenWindows::refuse(const TokenPiece& piece, int64_t begin, int64_t end) const {
  const int64_t width = width_of(stream_.type);
  for (int64_t at = begin; at < end; ++at) {
    int64_t token = 0;
    widen_tokens(stream_.type, piece.data + at * width, 1, &token);
    if (token >= 0 && token < stream_.vocab_size) continue;
    throw DataError(
        fmt::format("[{}] {}: token {} at position {} is outside the vocabulary [0, {}); set "
                    "{}.vocab_size and {}.dtype to what the file was written with",
                    what_, piece.name, to_text(token), to_text(piece.first + at),
                    to_text(stream_.vocab_size), what_, what_));
  }
  throw DataError("[" + what_ + "] " + piece.name + " changed while it was read; leave it alone");
}

}  // namespace tanren
