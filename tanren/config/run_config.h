// RunConfig: what the user asked for, one aggregate per room, each default at its field.
// Torch-free. Filled from TOML and --set by read_config.h, checked as a whole by validate.h. The
// names here are those of the config file, the log and the documentation; fields.h describes each
// of them (one visitor per struct) and is the only list of keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

struct RunOptions {
  std::string name;  // folder runs/<name>; required (default: the config file's stem)
  int64_t seed = 0;
  std::optional<int64_t> steps;       // applied updates; this or epochs
  std::optional<int64_t> epochs;      // passes over the training data
  std::string device = "auto";        // auto, cpu, cuda, cuda:<i>
  int64_t threads = 0;                // 0: the cores this process may use
  bool deterministic = false;         // deterministic kernels only
  std::optional<int64_t> stop_after;  // applied steps of this session before a resumable stop
};

struct UnfreezeOptions {                // [[model.unfreeze]]
  std::vector<std::string> parameters;  // glob patterns of parameters frozen by model.freeze
  std::optional<int64_t> step;  // applied updates before they are trained; 0: from the start
};

struct ModelOptions {
  std::string
      kind;  // mlp, convnet, gpt2, bert, lstm, resnet, vgg, or a name that the program registered
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
  std::optional<double> layer_norm_eps;
  std::optional<double> initializer_range;  // standard deviation of the initial weights
  std::string task;  // bert: classify, masked_lm; lstm: classify, next_token; empty: classify
  int64_t token_types = 0;                   // bert: number of token types; 0: 2
  std::optional<int64_t> pad_token;          // its embedding gets no gradient; -1: none
  std::optional<double> classifier_dropout;  // before the classifier; overrides dropout
  int64_t embedding_size = 0;                // lstm: width of a token's vector; 0: hidden_size
  bool bidirectional = false;                // lstm: also from the end to the start
  std::string memory_format = "auto";        // of images: auto, channels_last, contiguous
  int64_t append_head = 0;                   // outputs of a Linear appended to the model; 0: none
  std::string init_from;  // weights file, checkpoint or run folder; relative to the config file
  std::string from_hf;    // folder of save_pretrained, or the name of a model in a cache
  std::vector<std::string> init_skip;          // patterns of tensors not taken from that file
  std::vector<std::string> init_rename;        // old=new: renames parts of the file's tensor names
  std::vector<std::string> freeze;             // patterns of parameters that are not trained
  std::vector<UnfreezeOptions> unfreeze;       // the steps from which some of them are trained
  std::map<std::string, std::string> options;  // [model.options]: for registered kinds, verbatim
};

struct SourceOptions {               // [data.train], [data.eval]
  std::string kind;                  // csv, images, tensors, synthetic, text, text_table, tokens
  std::string path;                  // all but synthetic; relative to the config file
  std::string label = "label";       // csv, text_table: column that holds the label
  std::string label_type = "class";  // csv, text_table: class or value (float)
  std::vector<int64_t> shape;  // csv: shape of one sample's inputs; empty: one row of features
  double scale = 1.0;          // csv: inputs are multiplied by it
  double offset = 0.0;         // csv: then added to the inputs
  std::vector<std::string> only_classes;  // csv, tensors, images: only these classes, as 0, 1, …
  int64_t classes = 0;  // csv: labels must lie in [0, classes); 0: one more than the largest
  std::vector<std::string>
      fields;           // synthetic: "inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 9]"
  int64_t samples = 0;  // synthetic: number of samples
  std::vector<int64_t> size = {224};  // images: output height and width; one number: a square
  int64_t resize = 0;  // images: shorter edge before the crop; 0: the smallest that covers the crop
  std::string crop = "center";  // images: center, none; in training also random, shift
  std::vector<double> crop_scale = {0.08, 1.0};        // images, random: share of the area
  std::vector<double> crop_ratio = {0.75, 4.0 / 3.0};  // images, random: width / height
  int64_t pad = 0;            // images, shift: black pixels around the image before the crop
  double flip = 0.0;          // images: probability of mirroring a training image
  std::vector<double> color;  // images: jitter of brightness, contrast, saturation, hue
  int64_t channels = 3;       // images: 3 colours, or 1: grey
  std::vector<double> mean;   // images: subtracted from pixels in [0, 1], a number per channel
  std::vector<double> std;    // images: divides the pixels after that
  int64_t max_pixels = 100'000'000;  // images: a larger file counts as broken
  std::string broken = "error";      // images: error, skip
  int64_t context = 0;  // text, tokens: targets of a window; text_table: longest text; required
  int64_t stride = 0;   // text, tokens: distance from window to window; 0: context
  std::vector<std::string> include;  // text, tokens: names of files, below the folder; empty: all
  std::vector<std::string> exclude;  // text, tokens: names of files to leave out
  std::vector<double> part;          // text, tokens: share of the files, [low, high); empty: all
  std::string dtype = "auto";        // tokens: auto, uint8, uint16, uint32, int32, int64
  int64_t vocab_size = 0;            // tokens: ids lie in [0, vocab_size); required
  int64_t document_end = -1;         // tokens: the id that ends a document; -1: none
  std::string text = "text";         // text_table: column of the text
  std::string text_pair;             // text_table: column of the second text of a pair; empty: none
  std::string tokenizer;             // text_table: file or folder; relative to the config file
  std::vector<std::string> class_names;  // text_table: names of class 0, 1, …; empty: from the data
  std::string padding = "longest";       // text_table: longest (of the batch), fixed (context)
  std::string encoding = "utf-8";        // not a key; copied from data.encoding
};

struct DataOptions {
  int64_t workers = 1;             // loader threads; 0: collate on the step's own thread
  int64_t prefetch = 2;            // batches ready ahead of the step
  bool shuffle = true;             // training order: a pure function of (seed, epoch)
  std::string last = "keep";       // the short last batch of an epoch: keep, drop
  std::string encoding = "utf-8";  // of csv and text_table: utf-8, latin-1
  SourceOptions train;
  SourceOptions eval;  // kind empty: no evaluation data
};

struct BatchOptions {
  std::string global_batch = "32";  // samples per step over all ranks, or "epoch"
  int64_t microbatch = 0;           // samples per microstep; 0: the whole share of a rank
};

struct PrecisionOptions {
  std::string mode = "auto";  // auto, fp32, bf16, fp16, fp64
  std::string loss_scale =
      "auto";  // auto (dynamic for fp16, none otherwise), dynamic, static, none
  std::string initial_scale = "65536";  // a number, or "auto": found on the first window
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // steps without overflow before the scale grows
  double min_scale = 1.0;          // floor: at it an overflow counts as a non-finite gradient
  bool report_flush = false;       // log the share of gradient elements fp16 would lose
  std::string matmul = "highest";  // fp32 matrix products: highest, high (TF32), medium
  bool cudnn_benchmark = false;    // time cuDNN's algorithms; not bitwise repeatable
};

struct GroupOptions {                   // [[optimizer.groups]]
  std::vector<std::string> parameters;  // glob patterns; a parameter joins its first match
  std::optional<double> learning_rate_scale;
  std::optional<double> weight_decay;
};

// optimizer.state: parameters with fewer than kLeastPacked elements keep fp32 moments. 8-bit
// moments have one scale for each block of kPackedBlock elements.
constexpr int64_t kLeastPacked = 4096;
constexpr int64_t kPackedBlock = 256;

struct OptimizerOptions {
  // adamw, adam, nadam, radam, adagrad, rmsprop, adafactor, lion, muon, sgd
  std::string kind = "adamw";
  std::string init_from;  // torch checkpoint whose optimizer state the run starts from
  double learning_rate = 1e-3;
  std::optional<double> weight_decay;  // unset, here and below: by kind, see kinds.h
  double beta1 = 0.9;                  // adamw, adam, nadam, radam, lion, muon
  std::optional<double> beta2;         // the same kinds
  std::optional<double> eps;           // adamw, adam, nadam, radam, adagrad, rmsprop, muon
  std::optional<double> momentum;      // sgd, rmsprop, muon
  double dampening = 0.0;              // sgd
  std::optional<bool> nesterov;        // sgd, muon
  bool decay_norms_and_biases = true;  // false: no weight decay on 1-dim parameters
  std::vector<GroupOptions> groups;
  double layer_decay = 1.0;         // rate of a layer × decay ^ (layers above it); 1: off
  std::vector<std::string> layers;  // patterns from the input to the output; {} is a block's number
  bool amsgrad = false;             // adamw, adam
  std::string state = "fp32";       // adamw, adam: type of the moments: fp32, bf16, 8bit
  std::vector<std::string> fp32_state = {"*embed*", "*wte.*", "*wpe.*"};  // moments that stay fp32
  bool decoupled_weight_decay = false;                                    // nadam, radam
  double momentum_decay = 4e-3;                                           // nadam
  double alpha = 0.99;                                                    // rmsprop
  bool centered = false;                                                  // rmsprop
  double learning_rate_decay = 0.0;                                       // adagrad
  double initial_accumulator = 0.0;                                       // adagrad
  double beta2_decay = -0.8;                                              // adafactor
  double clip_threshold = 1.0;                                            // adafactor
  double scale_floor = 1e-3;                                              // adafactor
  bool relative_step = true;                                              // adafactor
  int64_t newton_schulz_steps = 5;                                        // muon
  std::string adjust_learning_rate = "match_rms_adamw";                   // muon: or original
  std::vector<std::string> adamw_parameters = {"*embed*", "*wte.*",       "*wpe.*",
                                               "*head*",  "*classifier*", "fc.*"};  // muon
};

struct ScheduleOptions {
  // constant, linear, cosine, cosine_with_restarts, polynomial, inverse_sqrt, step, multi_step,
  // one_cycle, warmup_stable_decay, reduce_on_plateau
  std::string kind = "constant";
  int64_t warmup_steps = 0;         // linear from 0 to the learning rate; not one_cycle
  double final_fraction = 0.0;      // learning rate at the end of the run, as a share of the peak
  int64_t cycles = 1;               // cosine_with_restarts
  double cycle_growth = 1.0;        // cosine_with_restarts: length of a cycle / the one before
  double power = 1.0;               // polynomial
  int64_t timescale = 0;            // inverse_sqrt; 0: warmup_steps, or 10000 if that is 0
  int64_t step_size = 0;            // step: updates between two reductions
  std::vector<int64_t> milestones;  // multi_step: updates before each reduction
  double factor = 0.1;              // step, multi_step, reduce_on_plateau
  double warmup_fraction = 0.3;     // one_cycle: share of the run in which the rate rises
  double div_factor = 25.0;         // one_cycle: peak / first rate
  double final_div_factor = 1e4;    // one_cycle: first rate / last rate
  std::string shape = "cosine";     // one_cycle, warmup_stable_decay: cosine, linear, 1-sqrt
  int64_t decay_steps = 0;          // warmup_stable_decay; 0: a tenth of the run
  std::string metric = "loss";      // reduce_on_plateau: the evaluation's metric
  std::string mode = "auto";        // reduce_on_plateau: min, max; auto: by the metric
  int64_t patience = 10;            // reduce_on_plateau: evaluations without improvement
  double threshold = 1e-4;          // reduce_on_plateau
  std::string threshold_mode = "rel";  // reduce_on_plateau: rel, abs
  int64_t cooldown = 0;                // reduce_on_plateau: evaluations after a reduction
};

struct ClipOptions {
  double norm = 0.0;   // largest global norm of an objective's gradients; 0: off
  double value = 0.0;  // then every element is clamped to [-value, value]; 0: off
};

struct GuardOptions {
  std::string nan_loss = "stop";      // stop, skip
  std::string nan_gradient = "stop";  // stop, skip
  int64_t max_skips = 5;              // stop after this many skips in a row that are no overflow
  double spike_z = 6.0;               // deviations above the running mean that are logged; 0: off
  int64_t spike_window = 100;  // updates in mean and deviation; none is logged before that many
  int64_t growth_steps = 64;   // steps before the first check for tensors never freed; 0: off
};

struct MemoryOptions {
  std::string allocator = "auto";  // of tensors on the CPU: auto, cached, default
  std::string limit = "auto";      // for tensors: "8GiB", "0.9" of what the machine has, auto, none
  std::vector<std::string> recompute;  // patterns of blocks that keep only their input for backward
  std::vector<std::string> offload;    // patterns of blocks that keep it in host memory meanwhile
  std::string recovery = "auto";       // when memory runs out: split, same_split, off; auto
  std::string release_cache = "pressure";  // when freed memory is given back: never, pressure, step
};

struct ParallelOptions {            // [parallel]: one run on several ranks, with the same numbers
  std::string ranks = "processes";  // processes (a launcher starts them), threads (replicas here)
  int64_t replicas = 0;             // threads: how many; 0: one per device, planned on the CPU
  std::vector<int64_t> devices;     // threads: indices of CUDA devices, one per replica; empty: all
  std::string backend = "auto";     // processes: auto, gloo, nccl
  std::string rendezvous;   // processes: tcp://host:port or file:///path; empty: the launcher's
  double timeout = 600.0;   // seconds that a rank waits for the others
  double bucket_mb = 25.0;  // gradients that are reduced at once, in MiB
  double first_bucket_mb = 1.0;   // size of the bucket that is ready first
  bool overlap = true;            // reduce while backward runs
  std::string compress = "none";  // gradients on the wire: none, bf16, fp16
  std::string buffers = "mean";   // batch norm over ranks: mean, first (rank 0's), synchronised
  int64_t check_every = 100;  // applied steps between comparisons of the weights; 0: at start only
  int64_t zero = 0;           // sharded over ranks: 0 nothing, 1 optimizer state, 2 also gradients
};

struct AverageOptions {          // [average]: a second copy of the weights, averaged over steps
  std::string kind = "none";     // none, ema, swa
  double decay = 0.999;          // ema: average = decay × average + (1 - decay) × weights
  bool decay_warmup = true;      // ema: after t updates min(decay, (1 + t) / (10 + t))
  int64_t every = 1;             // applied steps between updates of the average
  std::string start = "auto";    // first step averaged: a count, or a share of the run like "0.75"
  double learning_rate = 0.0;    // swa: constant rate from the start on; 0: the schedule's
  std::string buffers = "auto";  // auto, average, copy, estimate (floating buffers)
  int64_t estimate_batches = 0;  // estimate: training batches per estimation; 0: all of them
  bool evaluate = true;          // evaluate and export the averaged weights
};

struct EvaluateOptions {
  int64_t every = 0;  // steps between evaluations; 0: only at the end
  int64_t batch = 0;  // samples per evaluation batch; 0: as training's microbatch
  std::vector<std::string> metrics = {"accuracy"};  // base/metric_names.h has them all
  std::string checkpoint = "latest";                // tanren eval: latest, best, step-<n>, exported
};

struct EarlyStopOptions {       // [early_stop]
  int64_t patience = 0;         // evaluations without improvement that end the run; 0: off
  std::string metric = "loss";  // loss, or one of evaluate.metrics
  std::string mode = "auto";    // auto (by the metric), min, max
  double min_delta = 0.0;       // an improvement is better by more than this
  int64_t start = 0;            // evaluations before this step do not count
};

struct CheckpointOptions {
  int64_t every = 0;            // steps between checkpoints; 0: only at the end and when stopped
  int64_t keep = 2;             // how many of the newest step folders stay
  int64_t best = 0;             // how many of the best stay, too
  std::string metric = "loss";  // ranks the best: loss, or one of evaluate.metrics
  std::string mode = "auto";    // auto (by the metric), min, max
};

struct MetricsOptions {
  int64_t console_every = 1;      // steps between console lines (the log file has all)
  bool jsonl = true;              // log.jsonl, one line per attempt
  bool tensorboard = true;        // tensorboard/, event files
  int64_t tensorboard_every = 1;  // steps between points of its curves
};

struct GenerateOptions {     // the sample that tanren eval prints of a language model
  std::string prompt;        // text for byte data, else token numbers ("15496 11"); empty: 0
  int64_t tokens = 200;      // how many to add; 0: no sample
  double temperature = 1.0;  // 0: the most probable token each time
  int64_t top_k = 0;         // sample among the k most probable tokens; 0: all
  double top_p = 1.0;        // sample among the fewest tokens that hold this probability
  int64_t seed = 0;
  int64_t num_beams = 1;        // above 1: beam search, the most probable text
  double length_penalty = 1.0;  // compares beams that end at different lengths
  int64_t stop_token = -1;      // token that ends the text; -1: none
};

struct RunConfig {
  RunOptions run;
  ModelOptions model;
  DataOptions data;
  BatchOptions batch;
  PrecisionOptions precision;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ClipOptions clip;
  GuardOptions guard;
  MemoryOptions memory;
  ParallelOptions parallel;
  AverageOptions average;
  EvaluateOptions evaluate;
  EarlyStopOptions early_stop;
  CheckpointOptions checkpoint;
  MetricsOptions metrics;
  GenerateOptions generate;
  std::set<std::string> asked;  // full keys that the file or --set gave
};

}  // namespace tanren
