// The keys of [model], [data], [data.train] and [data.eval]. Included by fields.h.
#pragma once

#include "tanren/config/field_info.h"
#include "tanren/config/run_config.h"

namespace tanren {

// One table of model.unfreeze. Its keys are no full keys, so visit_config does not show them.
template <class V>
void fields(V& v, UnfreezeOptions& o) {
  v("parameters", o.parameters,
    {"Patterns of parameters that model.freeze holds (* any run, ? one character)."});
  v("step", o.step,
    {"Applied updates before they are trained, with optimizer state of their own from then on; 0: "
     "from the start, an exception from model.freeze."});
}

template <class V>
void fields(V& v, ModelOptions& o) {
  v("kind", o.kind,
    {"mlp, convnet, gpt2, bert, lstm, resnet, vgg, or a name that the program registered."});
  v("hidden", o.hidden, {"mlp: widths of the hidden layers, each ≥ 1; [] is a linear model."});
  v("channels", o.channels,
    {"convnet: channels per stage, each ≥ 1; each stage halves the image."});
  v("norm", o.norm, {"convnet: group, batch, none. batch couples the samples of a microbatch."});
  v("activation", o.activation,
    {"relu, gelu, gelu_tanh (approximated), tanh, silu. Empty: relu; bert: gelu."});
  v("dropout", o.dropout,
    {"Probability in [0, 1) of every dropout of the model; counter-based: the split cannot change "
     "it. "
     "Unset: 0; gpt2, bert: 0.1; vgg: 0.5. resnet has none."});
  v("outputs", o.outputs, {"Classes or regressed values; 0: as many as the data has."});
  v("loss", o.loss, {"cross_entropy, bce, mse, l1."});
  v("label_smoothing", o.label_smoothing,
    {"cross_entropy: share of the target spread evenly, in [0, 1)."});
  v("loss_chunk", o.loss_chunk,
    {"gpt2, lstm, bert for masked_lm: tokens whose scores are computed, and held, at once in "
     "training and evaluation. 0: as many as make 32 million scores, at least 512. A number above "
     "the tokens of a "
     "microbatch computes all scores at once."});
  v("size", o.size,
    {"Preset of a known model, the first if empty. gpt2: gpt2, distilgpt2, gpt2-medium, "
     "gpt2-large, gpt2-xl. bert: bert-base-uncased, bert-base-cased, bert-base-multilingual-cased, "
     "bert-base-chinese, bert-large-uncased, bert-large-cased, bert-tiny, bert-mini, bert-small, "
     "bert-medium. resnet: resnet18, 34, 50, 101, 152. vgg: vgg11, 13, 16, 19 and "
     "vgg11_bn, "
     "… with batch norm."});
  v("num_layers", o.num_layers, {"gpt2, bert: blocks; lstm: layers. 0: the preset's; lstm: 1."});
  v("num_heads", o.num_heads,
    {"gpt2, bert: attention heads, which divide hidden_size; 0: the preset's."});
  v("hidden_size", o.hidden_size,
    {"gpt2, bert: width of a token's vector; lstm: of its state. 0: the preset's; lstm: 256."});
  v("intermediate_size", o.intermediate_size,
    {"gpt2, bert: width inside a block's MLP; 0: 4 times hidden_size."});
  v("context_length", o.context_length,
    {"gpt2, bert: positions, the longest sequence it can see; 0: the preset's."});
  v("vocab_size", o.vocab_size,
    {"gpt2, bert, lstm: tokens it knows, at least as many as the data has; 0: the data's, or that "
     "of the bert that model.size names."});
  v("embedding_dropout", o.embedding_dropout,
    {"gpt2, bert, lstm: after the embeddings, in [0, 1); unset: model.dropout."});
  v("attention_dropout", o.attention_dropout,
    {"gpt2, bert: of attention weights, in [0, 1); unset: model.dropout."});
  v("residual_dropout", o.residual_dropout,
    {"gpt2, bert: of what a block adds, in [0, 1); unset: model.dropout."});
  v("layer_norm_eps", o.layer_norm_eps,
    {"gpt2, bert: added to a variance, > 0; unset: 1e-5; bert: 1e-12."});
  v("initializer_range", o.initializer_range,
    {"gpt2, bert: standard deviation of the initial weights, lstm: of the embedding's, > 0; unset: "
     "0.02; lstm: 1."});
  v("task", o.task,
    {"bert: classify (BertForSequenceClassification), masked_lm (BertForMaskedLM); lstm: classify, "
     "next_token; gpt2: next_token, classify (GPT2ForSequenceClassification). Empty: classify; "
     "gpt2: "
     "next_token."});
  v("token_types", o.token_types, {"bert: kinds of token, of sentence A and B; 0: 2."});
  v("pad_token", o.pad_token,
    {"bert, lstm: the token that pads, whose embedding starts at 0 and gets no gradient; -1: none. "
     "Unset: none; bert: 0."});
  v("classifier_dropout", o.classifier_dropout,
    {"bert, lstm: before the classifier, in [0, 1); unset: model.dropout."});
  v("embedding_size", o.embedding_size, {"lstm: width of a token's vector; 0: hidden_size."});
  v("bidirectional", o.bidirectional,
    {"lstm: reads from the end to the start, too; not for task next_token."});
  v("memory_format", o.memory_format,
    {"convnet, resnet, vgg and kinds of your own: how images and the weights of convolutions lie "
     "in memory: channels_last (NHWC), contiguous (NCHW) or auto, what is faster here. Files are "
     "NCHW either way.",
     Identity::free});
  v("append_head", o.append_head,
    {"A linear layer `appended` after the model's outputs, with so many values; the model itself "
     "keeps model.outputs (0: 1000 of resnet and vgg, or what from_hf has). Not where tokens are "
     "guessed. 0: none."});
  v("init_from", o.init_from,
    {"Start from these weights: a file (safetensors, its index, .pt, .bin), a checkpoint or a run "
     "folder; relative to the config file.",
     Identity::by_name, false, PathKind::file});
  v("from_hf", o.from_hf,
    {"Start from a trained model, whose kind and sizes need not be given: a folder of Hugging "
     "Face's save_pretrained (bert, gpt2), a name in the caches of Hugging Face and torch.hub "
     "(bert-base-uncased, owner/name, resnet50), or a .pt file of torch.save(model) of their "
     "classes; relative to the config file. Keys given beside it stand above its config.json.",
     Identity::by_name, false, PathKind::file_or_name});
  v("init_skip", o.init_skip,
    {"Patterns of tensors not taken from init_from or from_hf: initialised anew, or left in the "
     "file."});
  v("init_rename", o.init_rename, {"Renames of the file's tensors, each \"old=new\"."});
  v("freeze", o.freeze,
    {"Patterns of parameters that are not trained; a module that is frozen "
     "whole keeps its batch-norm statistics and draws no dropout."});
  v("unfreeze", o.unfreeze,
    {"Tables [[model.unfreeze]]: which frozen parameters are trained from which step on; the "
     "earliest that matches counts."});
  v("options", o.options, {"Table of options for a registered kind, handed on as text."});
}

template <class V>
void fields(V& v, SourceOptions& o) {
  v("kind", o.kind,
    {"csv, images (a folder of JPEG and PNG per class), tensors, synthetic, text (bytes), "
     "text_table (texts with a label each), tokens."});
  v("path", o.path,
    {"csv, tensors: the file; text_table: a .csv, .tsv or .jsonl file; images: the folder; text, "
     "tokens: a file, a folder searched in depth, or a pattern of them (*, ?, [a-z]). Relative to "
     "the config file. The data themselves must be the same.",
     Identity::free, false, PathKind::file});
  v("label", o.label, {"csv, text_table: name of the label column."});
  v("label_type", o.label_type, {"csv, text_table: class (csv: 0, 1, …) or value (regression)."});
  v("shape", o.shape, {"csv: shape of one sample's inputs; empty: a row of features."});
  v("scale", o.scale, {"csv: inputs are multiplied by it; not 0."});
  v("offset", o.offset, {"csv: and this is added."});
  v("only_classes", o.only_classes,
    {"csv, tensors (numbers), images (folders): samples of these classes alone, which become 0, 1, "
     "… in this order. []: all.",
     Identity::defines, true});
  v("classes", o.classes,
    {"csv, text_table: labels must lie in [0, classes); 0: one more than the largest."});
  v("fields", o.fields,
    {"synthetic: such as \"inputs: float[1,8,8] in [-1, 1]\", \"labels: int[] in [0, 9]\"."});
  v("samples", o.samples, {"synthetic: how many, ≥ 1."});
  v("size", o.size, {"images: [height, width] that come out; one number is a square."});
  v("resize", o.resize,
    {"images: shorter edge before the crop; 0: the smallest that covers the crop."});
  v("crop", o.crop,
    {"images: center, none (squeezed to size); in training also random (a random part, resized), "
     "shift (a random place)."});
  v("crop_scale", o.crop_scale,
    {"images, crop random: smallest and largest share of the area, in (0, 1]."});
  v("crop_ratio", o.crop_ratio, {"images, crop random: smallest and largest width / height."});
  v("pad", o.pad,
    {"images, crop shift: black pixels around the image, in its size before the crop."});
  v("flip", o.flip, {"images: probability that a training image is mirrored, in [0, 1]."});
  v("color", o.color,
    {"images: jitter of [brightness, contrast, saturation, hue] in training; hue ≤ 0.5."});
  v("channels", o.channels, {"images: 3 (RGB) or 1 (grey)."});
  v("mean", o.mean, {"images: taken off pixels in [0, 1], a number per channel; []: 0."});
  v("std", o.std, {"images: what is left is divided by it, a number per channel; []: 1."});
  v("max_pixels", o.max_pixels, {"images: a file with more pixels counts as broken."});
  v("broken", o.broken,
    {"images: damaged, empty or unreadable files are an error, or skip: left out and named.",
     Identity::free});
  v("context", o.context,
    {"text, tokens: tokens that a window sees and predicts, ≥ 1; text_table: of a sample at most, "
     "longer ones are cut."});
  v("stride", o.stride,
    {"text, tokens: from one window to the next, up to context; 0: context. Where windows overlap, "
     "training learns all targets of each, evaluation counts every target once."});
  v("include", o.include,
    {"text, tokens: patterns of the files' names below the folder (* crosses folders); []: all."});
  v("exclude", o.exclude, {"text, tokens: files of these names are left out."});
  v("part", o.part,
    {"text, tokens: [low, high) of [0, 1): the files whose name hashes into it; of one file, that "
     "stretch. Parts that do not overlap share nothing. []: all."});
  v("dtype", o.dtype,
    {"tokens: auto, uint8, uint16, uint32, int32, int64. auto: what a .npy or .safetensors header "
     "says; raw ids are uint16 while vocab_size ≤ 65536, else uint32."});
  v("vocab_size", o.vocab_size, {"tokens: ids lie in [0, vocab_size); a larger one is an error."});
  v("document_end", o.document_end,
    {"tokens: id that ends a document; what follows it is no target. -1: none."});
  v("text", o.text, {"text_table: name of the column that holds the text."});
  v("text_pair", o.text_pair, {"text_table: of a second text, for pairs; empty: none."});
  v("tokenizer", o.tokenizer,
    {"text_table: tokenizer.json, vocab.txt, vocab.json (merges.txt beside it), or their folder; "
     "relative to the config file. data.eval: empty is that of data.train. A run that goes on has "
     "its own copy.",
     Identity::free, false, PathKind::file});
  v("class_names", o.class_names,
    {"text_table: names of class 0, 1, …, as the label column has them. []: the names that "
     "data.train has, sorted; none if all its labels are whole numbers."});
  v("padding", o.padding,
    {"text_table: longest (of the batch, to a multiple of 8) or fixed (context). Padding is "
     "masked: it weighs nothing."});
}

template <class V>
void fields(V& v, DataOptions& o) {
  v("workers", o.workers,
    {"Loader threads of a machine, shared by its ranks, 0 to 256; 0: the step's own thread "
     "collates.",
     Identity::free});
  v("prefetch", o.prefetch, {"Batches ready ahead of the step, 1 to 4096.", Identity::free});
  v("shuffle", o.shuffle, {"Order drawn anew each epoch, a pure function of seed and epoch."});
  v("last", o.last, {"The short last batch of an epoch: keep, drop."});
  v("encoding", o.encoding,
    {"csv, text_table: utf-8, or latin-1 (one byte a character). Bytes that are none of it are an "
     "error, named by file, line and byte.",
     Identity::free});
}

}  // namespace tanren
