#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/kinds.h"
#include "tanren/config/problems.h"

#include <algorithm>
#include <cmath>

namespace tanren {

void fields(FieldList& add, SourceOptions& o) {
  add("kind", &o.kind,
      "csv, images (a folder of JPEG and PNG per class), pairs (pictures with a picture each as "
      "target), tensors, synthetic, text (bytes, or tokens of data.train.tokenizer), text_table "
      "(texts with a label each), tokens.");
  add("path", &o.path, Identity::free,
      "csv, tensors: the file; text_table: a .csv, .tsv or .jsonl file; images: the folder; pairs: "
      "the folder that holds inputs/ and targets/; text, tokens: a file, a folder (searched "
      "recursively), or a pattern of them (*, ?, [a-z]). Relative to the config file. A run that "
      "resumes needs the same data.",
      TextKind::file);
  add("label", &o.label, "csv, text_table: name of the label column.");
  add("label_type", &o.label_type,
      "csv, text_table: class (0, 1, … or names) or value (regression).");
  add("shape", &o.shape, "csv: shape of one sample's inputs; empty: a row of features.");
  add("scale", &o.scale, "csv: factor on the inputs; not 0.");
  add("offset", &o.offset, "csv: number added to the inputs after scale.");
  add_table_fields(add, o);
  add("only_classes", &o.only_classes, Identity::defines,
      "csv (as in the label column), tensors (numbers), images (folders): use only samples of "
      "these classes, which become 0, 1, … in this order. []: all.",
      TextKind::number_or_word);
  add("classes", &o.classes,
      "csv, text_table: number of classes; labels must lie in [0, classes). 0: one more than the "
      "largest label.");
  add("fields", &o.fields,
      "synthetic: fields of a sample, such as \"inputs: float[1,8,8] in [-1, 1]\", \"labels: int[] "
      "in [0, 9]\".");
  add("samples", &o.samples, "synthetic: number of samples, ≥ 1.");
  add("size", &o.size, "images, pairs: [height, width] that come out; one number is a square.");
  add("resize", &o.resize,
      "images, pairs: shorter edge before the crop; 0: the smallest that covers the crop.");
  add("crop", &o.crop,
      "images, pairs: center, none (the whole image, resized); in training also random (a random "
      "part, resized), shift (a crop at a random place).");
  add("crop_scale", &o.crop_scale,
      "images, pairs, crop random: smallest and largest share of the area, in (0, 1].");
  add("crop_ratio", &o.crop_ratio,
      "images, pairs, crop random: smallest and largest width / height.");
  add("pad", &o.pad,
      "images, pairs, crop shift: black pixels added around the resized image before the crop.");
  add("flip", &o.flip, "images, pairs: probability that a training image is mirrored, in [0, 1].");
  add("color", &o.color,
      "images: jitter of [brightness, contrast, saturation, hue] in training; hue ≤ 0.5.");
  add("channels", &o.channels, "images, pairs: 3 (RGB) or 1 (grey).");
  add("mean", &o.mean, "images: subtracted from pixels in [0, 1], a number per channel; []: 0.");
  add("std", &o.std, "images: divisor of the pixels after that, a number per channel; []: 1.");
  add("max_pixels", &o.max_pixels, "images, pairs: a file with more pixels counts as broken.");
  add("broken", &o.broken, Identity::free,
      "images, pairs: treatment of damaged, empty or unreadable files: error, skip (they are left "
      "out and named).");
  add("side_by_side", &o.side_by_side,
      "pairs: a file holds both pictures, the input on the left, the target on the right; path is "
      "their folder.");
  add("swap", &o.swap, "pairs: targets become the inputs, and inputs the targets.");
  add("filter", &o.filter,
      "pairs: filter that resizes inputs: bilinear, bicubic, nearest (mixes no labels).");
  add("target_filter", &o.target_filter,
      "pairs: filter that resizes targets; empty: the same as filter.");
  add("target_channels", &o.target_channels,
      "pairs: channels of targets, 3 or 1; 0: the same as channels.");
  add("context", &o.context,
      "text, tokens: number of tokens that a window reads and predicts, ≥ 1; text_table: longest "
      "sample in tokens, longer ones are cut.");
  add("stride", &o.stride,
      "text, tokens: distance in tokens from one window to the next, up to context; 0: context. "
      "Where windows overlap, training learns all targets of each, evaluation counts every target "
      "once.");
  add("include", &o.include,
      "text, tokens: patterns of the files' names below the folder (* crosses folders); []: all.");
  add("exclude", &o.exclude, "text, tokens: patterns of names of files that are left out.");
  add("part", &o.part,
      "text, tokens: part [low, high) of [0, 1): the files whose name hashes into it, or that "
      "stretch of a single file. Parts that do not overlap share nothing. []: all.");
  add("dtype", &o.dtype,
      "tokens: auto, uint8, uint16, uint32, int32, int64. auto: what a .npy or .safetensors header "
      "says; raw ids are uint16 while vocab_size ≤ 65536, else uint32.");
  add("vocab_size", &o.vocab_size,
      "tokens, text with a tokenizer: size of the vocabulary; an id outside [0, vocab_size) is an "
      "error. 0: the tokenizer's.");
  add("document_end", &o.document_end,
      "tokens, text with a tokenizer: id that ends a document; the token after it is no target. "
      "-1: none.");
  add("document_end_token", &o.document_end_token,
      "tokens, text with a tokenizer: document_end by the token's text, such as \"<|endoftext|>\"; "
      "empty: none.");
  add("text", &o.text, "text_table: name of the column that holds the text.");
  add("text_pair", &o.text_pair,
      "text_table: name of the column that holds a second text, for pairs; empty: none.");
  add("tokenizer", &o.tokenizer, Identity::free,
      "tokenizer.json, vocab.txt, vocab.json (merges.txt beside it), or their folder; relative to "
      "the config file. text_table needs one. text: the text becomes its tokens, not bytes. "
      "tokens: the tokenizer that made the ids. data.eval: empty takes that of data.train. A run "
      "that resumes has its own copy.",
      TextKind::file);
  add("class_names", &o.class_names,
      "csv, text_table: names of class 0, 1, …, as the label column has them. []: the names that "
      "data.train has, sorted; none if all its labels are whole numbers.");
  add("padding", &o.padding,
      "text_table: padded length: longest (of the batch, to a multiple of 8) or fixed (context). "
      "Padding is masked and does not count.");
}

void fields(FieldList& add, DataOptions& o) {
  add("workers", &o.workers, Identity::free,
      "Loader threads of a machine, shared by its ranks, 0 to 256; 0: the thread of the step "
      "prepares the batches.");
  add("prefetch", &o.prefetch, Identity::free, "Batches ready ahead of the step, 1 to 4096.");
  add("shuffle", &o.shuffle,
      "Shuffle the samples in each epoch; the order is a pure function of seed and epoch.");
  add("last", &o.last, "The short last batch of an epoch: keep, drop.");
  add("encoding", &o.encoding, Identity::free,
      "csv, text_table: encoding of the file: utf-8 or latin-1 (one byte a character). Invalid "
      "bytes are an error that names file, line and byte.");
  add("split", &o.split,
      "Share of data.train, in [0, 1), that is kept for evaluation and not trained on. A hash of "
      "the row or of the file's name chooses it, the same share of each class; a single file of "
      "text or tokens gives its end. Not with data.eval. 0: none.");
}

namespace {

void check_only_classes(Problems& p, const std::string& section, const SourceOptions& o) {
  const auto& only = o.only_classes;
  p.check(only.size() != 1, section + "only_classes has one class; a classifier needs two or more");
  p.check(std::set<std::string>(only.begin(), only.end()).size() == only.size(),
          section + "only_classes names a class twice; drop one");
  p.check(only.empty() || o.label_type != "value",
          section + "only_classes has no meaning for " + section + "label_type \"value\"; drop it");
}

void check_source(Problems& p, const std::string& section, const SourceOptions& o,
                  const ModelOptions& model, const std::vector<std::string>& registered) {
  const auto unused = [&](const std::vector<std::string>& keys) {
    p.unused(section, keys, section + "kind", o.kind);
  };
  Keys kinds = names_of(dataset_kinds());
  kinds.insert(kinds.end(), registered.begin(), registered.end());
  p.one_of(section + "kind", o.kind, kinds);
  // A registered kind may read any key. Its own code reports which keys it needs.
  if (std::find(registered.begin(), registered.end(), o.kind) != registered.end()) return;
  check_images(p, section, o);
  check_token_data(p, section, o);
  check_table(p, section, o);
  if (o.kind == "csv" || o.kind == "tensors") {
    p.check(!o.path.empty(), section + "path is missing; name the " + o.kind + " file");
    unused({"fields", "samples"});
  }
  const bool is_pictures = o.kind == "images" || o.kind == "pairs";
  if (is_pictures) unused({"fields", "samples", "classes"});
  if (is_pictures || o.kind == "tensors" || o.kind == "synthetic") {
    unused({"label", "label_type", "shape", "scale", "offset"});
    if (o.kind == "synthetic") unused({"classes"});
  }
  if (o.kind == "synthetic") {
    unused({"path"});
    p.check(!o.fields.empty(),
            section +
                "fields is missing; for example [\"inputs: float[64] in [-1, 1]\", "
                "\"labels: int[] in [0, 9]\"]");
    p.count(section + "samples", o.samples, 1);
  }
  if (o.kind != "csv" && o.kind != "tensors" && o.kind != "images") unused({"only_classes"});
  check_only_classes(p, section, o);
  p.sizes(section + "shape", o.shape);
  p.one_of(section + "label_type", o.label_type, {"class", "value"});
  p.within(section + "classes", o.classes, 0, kAbsurdWidth, false);
  p.check(o.scale != 0 && std::isfinite(o.scale),
          fmt::format("{}scale is {}; it must be finite and not 0", section, to_text(o.scale)));
  p.check(std::isfinite(o.offset),
          fmt::format("{}offset is {}; give a number", section, to_text(o.offset)));
  p.check((o.kind != "csv" && o.kind != "text_table") || o.label_type != "value" ||
              model.loss != "cross_entropy",
          section +
              "label_type \"value\" does not go with model.loss \"cross_entropy\"; take "
              "mse, l1 or bce");
  p.check(o.label_type != "value" || o.classes == 0,
          section + "classes has no meaning for " + section + "label_type \"value\"; drop it");
}

// Both sections must prepare samples in the same way for the model.
void check_pair(Problems& p, const DataOptions& o) {
  const SourceOptions &train = o.train, &eval = o.eval;
  const auto same = [&](const std::string& key, bool equal) {
    p.check(equal, "data.eval." + key + " differs from data.train." + key +
                       "; a model must be evaluated on what it was trained on: make them equal");
  };
  const bool is_one_kind = train.kind == eval.kind;
  if (is_one_kind && train.kind == "images") {
    same("channels", train.channels == eval.channels);
    same("mean", train.mean == eval.mean);
    same("std", train.std == eval.std);
  }
  if (is_one_kind && train.kind == "pairs") {
    same("channels", train.channels == eval.channels);
    same("target_channels", train.target_channels == eval.target_channels);
    same("swap", train.swap == eval.swap);
  }
  check_token_pair(p, o);
  check_columns_pair(p, o);
  if (is_one_kind && train.kind == "csv") {
    same("scale", train.scale == eval.scale);
    same("offset", train.offset == eval.offset);
  }
  if (is_one_kind) same("only_classes", train.only_classes == eval.only_classes);
}

}  // namespace

namespace {

void check_split(Problems& p, const DataOptions& o) {
  p.within("data.split", o.split, 0, 1, false);
  if (!(o.split > 0)) return;
  p.check(o.eval.kind.empty(),
          "data.split is " + to_text(o.split) +
              " and data.eval.kind is set; evaluation data come from one of them: drop data.split, "
              "or [data.eval]");
}

}  // namespace

void check_data(Problems& p, const RunConfig& config, const std::vector<std::string>& registered) {
  const DataOptions& o = config.data;
  if (o.train.kind.empty()) {
    p.check(false, "data.train.kind is missing; one of " + join(names_of(dataset_kinds())));
  } else {
    check_source(p, "data.train.", o.train, config.model, registered);
  }
  if (!o.eval.kind.empty()) {
    check_source(p, "data.eval.", o.eval, config.model, registered);
    check_pair(p, o);
  } else {
    for (const auto& key : p.changed) {
      if (!key.starts_with("data.eval.")) continue;
      p.unused_keys.push_back({key, "data.eval.kind"});
      p.check(false, o.split > 0
                         ? key +
                               " is set beside data.split, whose evaluation part is read as "
                               "data.train says; drop it"
                         : key + " is set, data.eval.kind is not; set it too");
    }
  }
  check_split(p, o);
  p.within("data.workers", o.workers, 0, 256, true);
  p.within("data.prefetch", o.prefetch, 1, 4096, true);
  p.one_of("data.last", o.last, {"keep", "drop"});
  p.one_of("data.encoding", o.encoding, {"utf-8", "latin-1"});
  const auto reads_text = [](const SourceOptions& source) {
    const DatasetKind* kind = dataset_kind(source.kind);
    return source.kind.empty() || (kind != nullptr && kind->has_encoding);
  };
  const bool is_own =
      std::find(registered.begin(), registered.end(), o.train.kind) != registered.end();
  if (!reads_text(o.train) && !is_own) {
    p.unused("data.", {"encoding"}, "data.train.kind", o.train.kind);
  }
}

}  // namespace tanren
