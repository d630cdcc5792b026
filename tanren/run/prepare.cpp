#include "tanren/run/prepare.h"

#include "tanren/base/error.h"
#include "tanren/base/machine_memory.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/data/collated.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/forecast/block_profile.h"
#include "tanren/forecast/generator_scope.h"
#include "tanren/forecast/stages.h"
#include "tanren/memory/attempt.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/model/package.h"
#include "tanren/optimizer/schedule.h"
#include "tanren/plan/planner.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/plan/words.h"
#include "tanren/run/check_data.h"
#include "tanren/run/connect.h"
#include "tanren/run/start_files.h"
#include "tanren/train/device.h"
#include "tanren/train/freezing.h"
#include "tanren/train/model_dtype.h"
#include "tanren/train/quantized_training.h"
#include "tanren/train/step_error.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// Bytes of the data, counted after the model was built (`module`) or before (null). 0: tensors are
// not counted.
int64_t standing_bytes(const torch::nn::Module* module, const Plan& plan) {
  if (!plan.memory.own_allocator) return 0;
  int64_t of_model = 0;
  if (module != nullptr) {
    for (const auto& [name, tensor] : tensors_of(*module)) {
      of_model += static_cast<int64_t>(tensor.storage().nbytes());
    }
    // Constants that the task made beside its module (a perceptual loss) are predicted with it.
    constexpr auto kWeights = static_cast<size_t>(MemoryKind::weights);
    of_model = std::max(of_model, cpu_memory_by_kind().at(kWeights));
  }
  return std::max<int64_t>(cpu_memory_stats().live_bytes - of_model, 0);
}

using MakePlan = std::function<Plan(const RunConfig&)>;

// `quantization` may be null.
FitInput fit_input(const RunConfig& config, const Registry& registry, MakePlan plan,
                   const Datasets& datasets, const ModelProfile& facts, int64_t standing,
                   const std::shared_ptr<const FakeQuantization>& quantization = nullptr) {
  return {.config = config,
          .plan = std::move(plan),
          .make_task =
              [&registry, train = datasets.train.get(), quantization](const RunConfig& other) {
                Task task = build_task(other, registry.models, *train);
                return quantization ? fake_quantized(std::move(task), *quantization) : task;
              },
          .dataset = datasets.train.get(),
          .standing_bytes = standing,
          .couples_samples = facts.couples_samples,
          .has_evaluation = datasets.eval != nullptr,
          .blocks = facts.blocks};
}

// The model's blocks, on samples like the first one.
ModelBlocks blocks_of(const RunConfig& config, const Registry& registry, Machine machine,
                      const ModelProfile& facts, const Dataset& train) {
  RunConfig alone = without_stages(config, registry);
  alone.parallel.ranks = "processes";
  machine.rank = machine.local_rank = 0;
  machine.world_size = machine.local_ranks = 1;
  const GeneratorScope generators(at::kCPU);  // a dataset may draw
  // Two: batch norm wants two values a channel.
  const int64_t samples = std::min<int64_t>(train.size(), 2);
  std::vector<int64_t> indices(static_cast<size_t>(samples));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  const Batch batch = collated(train, indices).batch;
  try {
    return block_profile(
        make_plan(alone, machine, facts), [&] { return build_task(alone, registry.models, train); },
        batch);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format(
        "[plan] parallel.pipeline is {}, and the model's blocks are not known, since its forward "
        "cannot be run without values: {}; drop parallel.pipeline",
        to_text(config.parallel.pipeline), said_by(error)));
  }
}

// Without a limit, and on an accelerator, the weights must fit the host's memory, where they are
// made.
void refuse_beyond_host(const ModelProfile& facts) {
  const int64_t total = room_of(read_machine_memory()).total_bytes;
  const int64_t bytes = facts.num_parameters * static_cast<int64_t>(sizeof(float));
  if (total <= 0 || bytes <= total) return;
  throw ConfigError(
      fmt::format("[plan] {} parameters are {} of weights, and this machine has {} of memory; take "
                  "a smaller model",
                  to_text(facts.num_parameters), size_text(bytes), size_text(total)));
}

// Drops the optimizer's groups, because they may name input scales, which only quantization-aware
// training has.
void drop_groups(RunConfig& config) {
  config.optimizer.groups.clear();
  for (auto& [name, objective] : config.objectives) objective.optimizer.groups.clear();
}

// Checks the sizes first, so that a model that does not fit in memory is refused before any of it
// is allocated. Skips the full check if the training state is far below the limit. A factory that
// may keep its modules gets no dry call before it has made the real model.
void refuse_too_large(RunConfig config, const Registry& registry, const Machine& machine,
                      const Datasets& datasets) {
  if (!registry.models.makes_anew(config.model.kind)) return;
  if (config.quantize.scheme == "static") drop_groups(config);  // of scales not known yet
  ModelProfile facts;
  try {
    const DryScope dry;
    facts = profile(build_task(config, registry.models, *datasets.train), datasets);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception&) {  // it needs values; the real model will report any error
    return;
  }
  const Plan plan = make_plan(config, machine, facts);
  constexpr int64_t kBytesOfState = 16;  // weight, gradient and two moments of a parameter
  const int64_t limit = plan.memory.limit_bytes;
  if (limit <= 0 || plan.device.device != "cpu") refuse_beyond_host(facts);
  if (limit <= 0) return;
  if (facts.num_parameters < limit / 2 / kBytesOfState) return;
  if (config.parallel.pipeline > 1) {
    facts.blocks = blocks_of(config, registry, machine, facts, *datasets.train);
  }
  fit_memory(fit_input(
      config, registry, [&](const RunConfig& other) { return make_plan(other, machine, facts); },
      datasets, facts, standing_bytes(nullptr, plan)));
}

// Wraps the task, which has its weights if it begins with some.
void quantize_training(const RunConfig& config, Prepared& prepared) {
  if (config.quantize.scheme == "none") return;
  prepared.quantization = std::make_shared<const FakeQuantization>(
      find_quantization(prepared.task, config, *prepared.datasets.train));
  prepared.plain = prepared.task;
  prepared.task = fake_quantized(std::move(prepared.task), *prepared.quantization);
}

// What each stage holds by the plan's cut.
void cut_by_plan(Prepared& prepared) {
  const auto& blocks = prepared.fit.blocks;
  if (!blocks) return;
  const PipelineCut cut = cut_named(*blocks, prepared.plan.parallel.cut_at);
  prepared.stages = stage_plans(*blocks, cut, *prepared.task.module);
}

}  // namespace

RunConfig without_stages(RunConfig config, const Registry& registry) {
  if (config.parallel.pipeline > 1 && config.parallel.ranks == "threads") {
    Machine machine = probe_machine();
    probe_accelerators(machine, config.run.device, registry.accelerators);
    const ParallelPlan staged = plan_connection(config, machine);
    config.parallel.replicas = staged.data_size();
    // run.threads counts those of all replicas.
    const int64_t all = config.run.threads > 0 ? config.run.threads : machine.cores;
    const int64_t each = std::max<int64_t>(all / staged.thread_ranks(), 1);
    config.run.threads = each * staged.data_size();
  }
  const ParallelOptions plain;
  config.parallel.pipeline = plain.pipeline;
  config.parallel.pipeline_schedule = plain.pipeline_schedule;
  config.parallel.cut_at = plain.cut_at;
  return config;
}

Prepared prepare(const RunConfig& asked, const Registry& registry, bool has_weights,
                 const std::filesystem::path& kept, Given given, bool trains) {
  RunConfig config = trains ? asked : without_stages(asked, registry);
  const Pretrained source = take_start(has_weights ? kept : "", config);
  config.model = source.model;
  if (!trains) drop_groups(config);
  Machine machine =
      with_world(probe_machine(), world_of(process_environment(), config.parallel.rendezvous));
  probe_accelerators(machine, config.run.device, registry.accelerators);
  // Counts the weights like all other tensors. The limit applies once the plan is fitted; the fit
  // refuses an impossible plan with numbers.
  MemoryPlan counting = plan_process_memory(config, machine);
  counting.limit_bytes = 0;
  apply_memory_plan(counting);
  Prepared prepared;
  prepared.datasets = given.datasets.train ? std::move(given.datasets)
                                           : open_datasets(config.data, registry.datasets);
  check_datasets(prepared.datasets, config.model, config.data, !has_weights);
  if (trains) refuse_too_large(config, registry, machine, prepared.datasets);
  prepared.task = given.task ? given.task(config.model)
                             : build_task(config, registry.models, *prepared.datasets.train,
                                          has_weights && !trains);
  const std::string initialised = initialise(prepared.task, source, has_weights);
  if (starts_from_torch(config) && !has_weights) {
    prepared.optimizer = read_optimizer_start(prepared.task, config);
  }
  quantize_training(config, prepared);
  if (trains) {
    check_freezing(
        *prepared.task.module, config.model,
        prepared.quantization ? led_scales(*prepared.quantization) : std::set<std::string>());
  }
  if (prepared.optimizer && prepared.quantization && prepared.quantization->num_norms > 0) {
    throw ConfigError(
        "[run] optimizer.init_from has the moments of weights before batch norms are folded into "
        "them, as quantize.scheme does at the start; drop one of them");
  }
  ModelProfile facts = profile(prepared.task, prepared.datasets);
  facts.initialised = initialised;
  if (prepared.quantization) note_scales(*prepared.quantization, facts);
  if (config.parallel.pipeline > 1) {
    facts.blocks = blocks_of(config, registry, machine, facts, *prepared.datasets.train);
  }
  const auto plan_of = [machine, facts, quantization = prepared.quantization,
                        classes = classes_line(*prepared.datasets.train),
                        odd = odd_dtypes(*prepared.task.module),
                        optimizer_lines = prepared.optimizer
                                              ? prepared.optimizer->lines
                                              : std::vector<PlanLine>()](const RunConfig& other) {
    Plan plan = make_plan(other, machine, facts);
    if (classes) add_beside_model(plan, *classes);
    if (quantization) {
      plan.lines.push_back(quantization_line(*quantization));
      if (const auto line = scales_line(*quantization, plan)) plan.lines.push_back(*line);
    }
    plan.lines.insert(plan.lines.end(), optimizer_lines.begin(), optimizer_lines.end());
    for (size_t i = 0; i < plan.objectives.size(); ++i) {
      const std::string own = "objectives." + plan.objectives[i].name + ".schedule.kind";
      const bool is_asked = other.asked.count("schedule.kind") + other.asked.count(own) > 0;
      plan.lines.push_back(schedule_line(plan, i, is_asked ? Source::asked : Source::by_default));
    }
    if (const auto line = dtype_line(odd, plan)) plan.lines.push_back(*line);
    return plan;
  };
  prepared.plan = plan_of(config);
  prepared.fit =
      fit_input(config, registry, plan_of, prepared.datasets, facts,
                standing_bytes(prepared.task.module.get(), prepared.plan), prepared.quantization);
  prepared.fit.runs_dry = prepared.task.facts.runs_dry;
  prepared.fit.least_samples = prepared.task.facts.least_samples;
  if (trains && prepared.task.facts.graph && config.model.kind == "package") {
    const PackageSamples samples = samples_of_package(config.model.path);
    prepared.fit.counts = {.most = samples.most, .multiple = samples.multiple};
  }
  prepared.config = std::move(config);
  cut_by_plan(prepared);
  return prepared;
}

void agree_on_limit(Prepared& prepared, Communicator& ranks) {
  if (prepared.plan.parallel.pipeline == 1 || ranks.world_size() == 1) return;
  const int64_t mine = room_for_step(prepared.plan, standing_beside(prepared.fit, prepared.plan));
  const at::Tensor all = gather_numbers(ranks, {mine});
  const auto rooms = all.accessor<int64_t, 2>();
  int64_t& least = prepared.fit.least_room_bytes;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const int64_t room = rooms[rank][0];
    if (room > 0 && (least == 0 || room < least)) least = room;
  }
}

Fitted fit(Prepared& prepared) {
  Fitted fitted = fit_memory(prepared.fit);
  prepared.plan = fitted.plan;
  if (fitted.prediction) {  // for recovery, which may split, on each of the replicas
    const auto tell = [least = fitted.prediction->least_samples](Task task) {
      task.facts.least_samples = std::max(task.facts.least_samples, least);
      return task;
    };
    prepared.task = tell(std::move(prepared.task));
    prepared.fit.make_task = [tell, make = std::move(prepared.fit.make_task)](
                                 const RunConfig& config) { return tell(make(config)); };
  }
  cut_by_plan(prepared);
  return fitted;
}

std::string computed_in(const Plan& plan) {
  const std::string& device = plan.device.device;
  return device.substr(0, device.find(':')) + "," + name(plan.precision.mode) + "," +
         name(plan.precision.matmul);
}

void fit_threads(Prepared& prepared) {
  DevicePlan& device = prepared.plan.device;
  if (device.device != "cpu" || device.threads == 1) return;
  try {
    FitInput dry = prepared.fit;
    dry.may_probe = false;
    device.threads = try_config(dry, prepared.config).plan.device.threads;
  } catch (const std::exception&) {  // a model that cannot run dry keeps its threads
  }
}

}  // namespace tanren
