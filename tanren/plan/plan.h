// Plan: what a run will do. Made once by make_plan (planner.h) from the config, the machine and
// facts about the model and the data; later code sees no "auto" and no missing value. Torch-free
// data: each room is built from its part of the plan; `tanren plan` prints the plan and starts
// nothing.
#pragma once

#include "tanren/base/graph_facts.h"
#include "tanren/base/pipeline_schedule.h"
#include "tanren/config/run_config.h"
#include "tanren/plan/pipeline_cut.h"
#include "tanren/plan/words.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The usable accelerators, which are of one kind.
struct Accelerators {
  std::string kind = "cuda";   // as in names of devices
  std::vector<int64_t> bytes;  // memory of each, by index; 0: unknown
  bool bf16 = false;           // they compute bf16 in hardware
  // By index: "NVIDIA H100 80GB HBM3". Fewer than there are devices if some are unknown.
  std::vector<std::string> names = {};
  // By index: the first number of CUDA's compute capability; 0 or missing: unknown.
  std::vector<int64_t> capabilities = {};

  int64_t count() const { return std::ssize(bytes); }
  // The kind in messages.
  std::string label() const { return kind == "cuda" ? "CUDA" : kind; }
};

// Facts about the hardware, as data, so that every pass can be tested without that hardware.
struct Machine {
  int64_t cores = 1;  // this process may use (affinity and cgroup quota)
  int64_t memory_bytes = 0;
  std::string cpu;                 // "AMD EPYC …"
  bool cpu_bf16 = false;           // avx512_bf16 or amx_bf16
  bool cpu_fp16 = false;           // avx512_fp16 or amx_fp16
  bool cpu_vnni = false;           // avx512_vnni: 8-bit products
  bool cpu_amx_int8 = false;       // amx_int8: the same, in tiles
  bool address_sanitizer = false;  // this program was built with it
  Accelerators accelerators;
  // The other ranks of this run. The caller fills these in from the launcher's variables.
  int64_t rank = 0;
  int64_t world_size = 1;  // processes
  int64_t local_rank = 0;
  int64_t local_ranks = 1;  // processes on this machine
  bool own_cores = false;   // the launcher gave `cores` to this process alone
  std::string launcher;     // torchrun, slurm, …; empty: none
  std::string rendezvous;   // where rank 0 listens, "host:port"; empty: no rendezvous
};

// One parameter of the model: what determines the size of its optimizer state.
struct ParameterFacts {
  std::string name;
  std::vector<int64_t> shape;
  bool trained = true;      // from the start on
  bool batch_norm = false;  // of a batch norm
  // Only for the scale of a layer's input (quantize.scheme): the weight with which it is frozen and
  // unfrozen, unless a pattern matches the scale and not the weight. Empty for other parameters.
  std::string follows = {};
  std::string first = {};  // first name of the tensor if this is a second one; else empty
};

// One objective of the task.
struct ObjectiveFacts {
  std::string name = "loss";
  std::string phase = "train";
  int64_t every = 1;                    // as the task has it
  std::vector<std::string> terms;       // listed by the task; empty: all of its phase's forward
  std::vector<double> weights;          // of these terms
  std::vector<std::string> parameters;  // those that it may change, trained and frozen
};

// Facts of the model and the data that planning needs.
struct ModelProfile {
  int64_t num_parameters = 0;
  int64_t num_trainable = 0;
  bool couples_samples = false;      // batch norm: results depend on how a batch is split
  std::string torch_dropout;         // name of a dropout that does not draw per sample; empty: none
  std::vector<int64_t> input_shape;  // of one sample's "inputs"
  bool tokens = false;               // the inputs are ids of a vocabulary
  int64_t train_samples = 0;
  int64_t eval_samples = 0;
  std::string split;  // what data.split gives to evaluation, in words; empty: nothing
  std::vector<std::string> class_names;    // of the data's classes, if they have names
  std::string initialised;                 // source of the initial weights, in words; empty: random
  std::vector<std::string> metrics;        // patterns of the evaluation metrics that fit the task
  int64_t classes = 0;                     // number that the model scores; 0: unknown, or none
  std::vector<ParameterFacts> parameters;  // in the model's order
  std::vector<std::string> still;          // modules that are frozen whole, only the outermost ones
  // In the task's order. Empty: one objective "loss" in one phase, with all parameters.
  std::vector<ObjectiveFacts> objectives;
  // For parallel.pipeline: the blocks, with what a sample costs in each. No value: not known yet.
  std::optional<ModelBlocks> blocks = {};
  std::optional<GraphFacts> graph = {};  // if one compiled graph computes the model
};

struct DevicePlan {
  std::string device = "cpu";  // cpu, or an accelerator and its index: cuda:<i>
  int64_t threads = 1;         // of one rank
  bool deterministic = false;
  std::vector<std::string> names = {};  // of this machine's accelerators, by index
  // Device memory that matrix products keep for each host thread that starts them.
  int64_t workspace_bytes = 0;

  // The device, with its name if that is known: "cuda:1 (NVIDIA H100 80GB HBM3)".
  std::string text() const;
};

struct MemoryPlan {
  bool own_allocator = false;     // CPU tensors: tanren's allocator, with counts and a limit
  bool cached_allocator = false;  // and it keeps the pages of large tensors
  int64_t limit_bytes = 0;        // for this process's tensors on its device; 0: none, or unknown
  double limit_share = 0;         // share of memory as an accelerator's limit; 0: no limit
  int64_t ranks_here = 1;         // ranks sharing this machine's memory; threads share the limit
  int64_t reserve_bytes = 0;      // part of the limit, for allocations that must succeed
  RecoveryMode recovery = RecoveryMode::off;  // evaluation: only during evaluation
  ReleaseCache release_cache = ReleaseCache::pressure;
  std::vector<std::string> recompute;  // patterns of blocks
  std::vector<std::string> offload;    // patterns of blocks
  int64_t offload_bytes = 1 << 20;     // smaller tensors of these blocks stay on the device
  bool channels_last = false;          // images and weights of convolutions lie as NHWC
};

struct ParallelPlan {
  int64_t rank = 0;        // of a thread: set by replica_plan (planner.h)
  int64_t world_size = 1;  // number of ranks: processes, or threads of this process
  int64_t local_rank = 0;
  int64_t local_ranks = 1;  // ranks on this machine
  Backend backend = Backend::single;
  std::string launcher;          // launcher of this process; empty: none
  std::string host;              // rendezvous: tcp://host:port or file:///path; empty: none
  int64_t replicas = 1;          // of the model, or of each stage, if ranks are threads
  std::vector<int64_t> devices;  // CUDA indices of the thread ranks, one each; empty: on the CPU
  int64_t pipeline = 1;          // stages; each has as many ranks
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::vector<std::string> cut_at;  // the first block of each later stage
  double timeout_seconds = 600;     // how long a rank waits for the others
  int64_t bucket_bytes = int64_t{25} << 20;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  bool overlap = true;
  Compress compress = Compress::none;
  RankBuffers buffers = RankBuffers::mean;
  int64_t check_every = 100;  // applied steps between checks; 0: only at the start
  int64_t zero = 0;           // 0, 1, 2

  // Ranks that are threads of this process; 1: this process is a rank.
  int64_t thread_ranks() const { return backend == Backend::threads ? world_size : 1; }
  // Ranks of a stage, which share the samples, and this rank's place in the mesh:
  // rank = stage × data_size + replica.
  int64_t data_size() const { return world_size / pipeline; }
  int64_t stage() const { return rank / data_size(); }
  int64_t replica() const { return rank % data_size(); }
};

struct BatchPlan {
  int64_t world_size = 1;    // ranks that share the samples: ParallelPlan::data_size()
  int64_t global_batch = 0;  // samples per full step
  int64_t per_rank = 0;
  int64_t microbatch = 0;          // samples per full microstep
  int64_t accumulation_steps = 0;  // microsteps of a full step
  int64_t last_microbatch = 0;     // samples of the last microstep, which may be a remainder
  bool keep_last = true;           // the short last batch of an epoch is trained on
  int64_t steps_per_epoch = 0;
};

struct LengthPlan {
  int64_t total_steps = 0;  // applied updates of the run (epochs × steps_per_epoch if by epochs)
  std::optional<int64_t> steps;   // stop after this many applied steps
  std::optional<int64_t> epochs;  // or after this many epochs
  double max_seconds = 0;         // limit for one start, its save included; 0: no limit
};

// Parameters that are trained from a step on, frozen until then.
struct Unfreeze {
  int64_t step = 0;  // applied updates before they are trained
  std::vector<std::string> parameters;
};

struct FreezePlan {
  std::vector<Unfreeze> unfreezes;  // in ascending order of step, all above 0
};

// One objective of the task: its turns, its loss, and all that its update depends on.
struct ObjectivePlan {
  std::string name = "loss";
  std::string phase = "train";
  int64_t every = 1;                      // it is updated at every `every`-th global batch
  std::map<std::string, double> weights;  // of terms, in place of the task's
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ClipOptions clip;
  int64_t total_steps = 0;  // its own applied updates in the run, which drive its schedule
  // Whether the config gives it its own groups, or its own layers and their decay. Own ones refer
  // to the objective's parameters, those of the run to the whole model's.
  bool has_own_groups = false, has_own_layers = false;
};

enum class Scaling { none, fixed, dynamic };

struct PrecisionPlan {
  Mode mode = Mode::fp32;  // type that forward computes in
  std::string level;       // O0 to O3; empty: none was asked for
  // Type of weights, buffers and a batch's fields; fp64 if the mode is fp64.
  Mode cast_model_type = Mode::fp32;
  bool patch_torch_functions = true;  // operators cast to the mode within forward, if it is 16 bits
  bool keep_batchnorm_fp32 = false;   // affine batch norms keep fp32 beside 16-bit weights
  bool master_weights = false;        // 16-bit weights have fp32 gradients and fp32 copies
  std::optional<Mode> cast_model_outputs;  // of predictions; unset: as they come
  Scaling scaling = Scaling::none;
  bool find_initial_scale = false;
  double initial_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1;
  double max_scale = 0x1p120;  // fp32 holds the scaled seed of a backward up to it
  bool report_flush = false;
  Matmul matmul = Matmul::highest;
  bool cudnn_benchmark = false;
};

enum class Averaging { none, ema, swa };
enum class AverageBuffers { average, copy, estimate };

struct AveragePlan {
  Averaging kind = Averaging::none;
  double decay = 0.999;      // ema
  bool decay_warmup = true;  // ema: min(decay, (1 + t) / (10 + t)) after t updates of the average
  int64_t every = 1;         // steps of the run between updates
  int64_t start = 0;         // applied steps before averaging begins
  double learning_rate = 0;  // the first objective's from then on; 0: the schedule's
  AverageBuffers buffers = AverageBuffers::average;
  int64_t estimate_batches = 0;  // 0: all of the training data
  bool evaluate = true;
};

// Which numbers become 8-bit.
struct QuantizePlan {
  QuantizeScheme scheme = QuantizeScheme::none;
  std::vector<std::string> keep;  // patterns of parameters that stay as they are
  int64_t samples = 0;            // of the training data, on which ranges and errors are measured
  RangeKind range = RangeKind::mse;
  double tolerance = 0;  // what the metric may lose: points, or per cent of a loss
};

// The metric that ranks evaluations, and its direction.
struct MetricPlan {
  std::string metric = "loss";
  bool lower_is_better = true;
};

enum class Source { asked, by_default, planned };

// One printed line: `key  value  source  reason`.
struct PlanLine {
  std::string key;
  std::string value;
  Source source = Source::by_default;
  std::string reason;
};

struct Plan {
  DevicePlan device;
  MemoryPlan memory;
  ParallelPlan parallel;
  BatchPlan batch;
  LengthPlan length;
  FreezePlan freeze;
  PrecisionPlan precision;
  AveragePlan average;
  QuantizePlan quantize;
  MetricPlan best;  // ranks checkpoint.best
  MetricPlan early_stop_by;
  // In the task's order; run.step counts the updates of the first.
  std::vector<ObjectivePlan> objectives = {ObjectivePlan{}};
  // Parts that need no planning: copied from the config.
  RunOptions run;
  ModelOptions model;
  DataOptions data;
  GuardOptions guard;
  EvaluateOptions evaluate;  // batch is resolved
  EarlyStopOptions early_stop;
  CheckpointOptions checkpoint;
  MetricsOptions metrics;
  GenerateOptions generate;
  std::vector<PlanLine> lines;
};

}  // namespace tanren
