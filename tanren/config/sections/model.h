// [model]: the kind of model, its sizes, its loss, and where its weights come from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct UnfreezeOptions {                // [[model.unfreeze]]
  std::vector<std::string> parameters;  // glob patterns of parameters frozen by model.freeze
  std::optional<int64_t> step;  // applied updates before they are trained; 0: from the start
};

struct ModelOptions {
  // mlp, convnet, gpt2, bert, lstm, resnet, vgg, pix2pixhd, torchscript, package, or a name that
  // the program registered
  std::string kind;
  std::string path;  // torchscript: the file; package: the folder; relative to the config file
  std::vector<int64_t> hidden = {128, 128};  // mlp: widths of the hidden layers
  std::vector<int64_t> channels = {32, 64};  // convnet: channels per stage
  std::string norm = "group";                // convnet: batch, group, none
  std::string activation;              // relu, gelu, gelu_tanh, tanh, silu; empty: the kind's own
  std::optional<double> dropout;       // every dropout of the model; unset: 0, or the preset's
  int64_t outputs = 0;                 // classes or regressed values; 0: as many as the data has
  std::string loss = "cross_entropy";  // cross_entropy, bce, mse, l1
  double label_smoothing = 0.0;        // cross_entropy only
  int64_t loss_chunk = 0;  // language models: tokens whose scores are in memory at once; 0: auto
  // Transformers. 0, empty or unset: the preset's.
  std::string size;  // preset; gpt2: gpt2, distilgpt2, …; resnet: resnet18, …; vgg: vgg11, …
  int64_t num_layers = 0;         // blocks
  int64_t num_heads = 0;          // attention heads of a block; must divide hidden_size
  int64_t hidden_size = 0;        // width of a token's vector
  int64_t intermediate_size = 0;  // width inside a block's MLP; gpt2: 0 is 4 × hidden_size
  int64_t context_length = 0;     // positions: the longest sequence that the model takes
  int64_t vocab_size = 0;         // 0: as many tokens as the data has
  std::optional<double> embedding_dropout, attention_dropout, residual_dropout;  // override dropout
  bool fused_attention_dropout = false;  // gpt2: torch's kernel draws it
  std::optional<double> layer_norm_eps;
  std::optional<double> initializer_range;  // standard deviation of the initial weights
  // bert: classify, masked_lm; lstm, torchscript: classify, next_token; empty: classify
  std::string task;
  int64_t token_types = 0;                   // bert: number of token types; 0: 2
  std::optional<int64_t> pad_token;          // its embedding gets no gradient; -1: none
  std::optional<double> classifier_dropout;  // before the classifier; overrides dropout
  int64_t embedding_size = 0;                // lstm: width of a token's vector; 0: hidden_size
  bool bidirectional = false;                // lstm: also from the end to the start
  // pix2pixhd. size is global or local.
  int64_t generator_channels = 64;      // of its first convolution, at the finest level
  int64_t num_downsamplings = 4;        // times that the global generator halves the picture
  int64_t num_blocks = 9;               // residual blocks of the global generator
  int64_t num_enhancers = 1;            // local: networks around it, each of twice the resolution
  int64_t enhancer_blocks = 3;          // local: residual blocks of each of them
  int64_t discriminators = 2;           // each sees half the resolution of the one before; 0: none
  int64_t discriminator_channels = 64;  // of their first convolution
  int64_t discriminator_layers = 3;     // strided convolutions of each
  std::string perceptual;  // file of vgg19's weights for the perceptual term; empty: no such term
  std::string memory_format = "auto";  // of images: auto, channels_last, contiguous
  int64_t append_head = 0;             // outputs of a Linear appended to the model; 0: none
  std::string init_from;  // weights file, checkpoint or run folder; relative to the config file
  std::string from_hf;    // folder of save_pretrained, or the name of a model in a cache
  std::vector<std::string> init_skip;          // patterns of tensors not taken from that file
  std::vector<std::string> init_rename;        // old=new: renames parts of the file's tensor names
  std::vector<std::string> freeze;             // patterns of parameters that are not trained
  std::vector<UnfreezeOptions> unfreeze;       // the steps from which some of them are trained
  std::map<std::string, std::string> options;  // [model.options]: for registered kinds, verbatim
};

}  // namespace tanren
