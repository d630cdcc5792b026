#include "tanren/run/run.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/comm/exchange.h"
#include "tanren/config/identity.h"
#include "tanren/data/text/token_cache.h"
#include "tanren/forecast/first_step.h"
#include "tanren/interop/model_description.h"
#include "tanren/metrics/jsonl_sink.h"
#include "tanren/plan/print.h"
#include "tanren/run/connect.h"
#include "tanren/run/failure.h"
#include "tanren/run/fork.h"
#include "tanren/run/fork_place.h"
#include "tanren/run/mesh.h"
#include "tanren/run/origin.h"
#include "tanren/run/prepare.h"
#include "tanren/run/quantized_run.h"
#include "tanren/run/rank_lines.h"
#include "tanren/run/replicas.h"
#include "tanren/run/run_folder.h"
#include "tanren/run/run_sinks.h"
#include "tanren/run/run_summary.h"
#include "tanren/run/sample.h"
#include "tanren/run/short_waits.h"
#include "tanren/run/start_files.h"
#include "tanren/train/device.h"
#include "tanren/train/estimate_statistics.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/take_over.h"

#include <chrono>
#include <functional>
#include <span>

namespace tanren {

namespace {

// How far rank 0 has come. If a run has recorded its end, a later error is no failure of the run.
struct Reached {
  std::optional<Summary> figures;  // of a run that fails in or after its loop
  bool has_ended = false;          // summary.json has the end of this start
};

// State that the ranks of a run share while it runs.
struct Shared {
  const RunInput& input;
  const RunConfig& config;  // the input's, with changes that earlier starts made on request
  const AcceleratorKind& accelerators;
  const Prepared& prepared;
  const Fitted& fitted;
  const RunFolder* folder = nullptr;  // of rank 0, else null
  std::optional<std::filesystem::path> checkpoint;
  Origin origin;
  Fork* fork = nullptr;             // that this start makes
  size_t num_old_changes = 0;       // number of origin.changes from earlier starts
  std::function<double()> elapsed;  // seconds since the process began
  std::string first_step;           // as run.debug asks; empty: not asked
  Reached& reached;                 // by rank 0
};

// The time by which a start that has run for `elapsed` seconds must end.
std::optional<std::chrono::steady_clock::time_point> end_of_start(const Plan& plan,
                                                                  double elapsed) {
  if (plan.length.max_seconds <= 0) return std::nullopt;
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> left(plan.length.max_seconds - elapsed);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(left);
}

using MakeState = std::function<RunState(const Parts&)>;

// Runs model and loop of one rank; rank 0 also writes the run folder.
RunOutput run_rank(const Shared& shared, const Plan& plan, const MakeState& make_state,
                   std::shared_ptr<const Ranks> ranks) {
  const Prepared& prepared = shared.prepared;
  Parts parts = build_parts(plan, shared.input.stop, shared.accelerators);
  parts.ranks = std::move(ranks);
  parts.stage = stage_of(prepared.stages, plan.parallel);
  const bool is_first = parts.ranks->world().is_first();
  RunState state = make_state(parts);
  if (shared.checkpoint) load_checkpoint(state, *shared.checkpoint, parts);
  if (shared.fork != nullptr) {
    auto left =
        take_over(state, parts.device, *shared.fork->snapshot, shared.fork->parts, plan.freeze);
    if (parts.stage) left = parts.ranks->agree_names(left);  // each rank has only its stage's names
    if (is_first && !left.empty()) {
      log(fmt::format(
          "[run] the optimizer's state of {} tensors does not fit and begins anew ({}{})",
          left.size(), left.front(), left.size() > 1 ? " and others" : ""));
    }
    if (plan.parallel.thread_ranks() == 1) shared.fork->snapshot.reset();  // closes its files
  }
  if (prepared.optimizer) start_optimizer(state, *prepared.optimizer);

  LoopInputs inputs{.train = *prepared.datasets.train,
                    .eval = prepared.datasets.eval.get(),
                    .checkpoints = shared.input.folder / "checkpoints",
                    .config_toml = recorded_toml(shared.config),
                    .plan_text = plan_text(plan),
                    .sinks = {},
                    .origin = to_json(shared.origin),
                    .ends_at = end_of_start(plan, shared.elapsed())};
  const std::vector<std::string> lines = rank_lines(parts);
  std::vector<std::unique_ptr<Sink>> own_sinks;
  if (is_first) {
    inputs.saved = [&] { shared.folder->note_saved(); };
    // The sinks get the changes of this start, and those of earlier starts that made no update
    // since.
    const auto& changes = shared.origin.changes;
    size_t untold = shared.num_old_changes;
    while (untold > 0 && changes[untold - 1].step == state.step()) --untold;
    own_sinks = make_sinks(*shared.folder, state,
                           prepared.datasets.eval != nullptr && owes_evaluation(state, plan),
                           plan.metrics, std::span(changes).subspan(untold),
                           {{"config", inputs.config_toml}, {"plan", inputs.plan_text}},
                           prepared.datasets.train->info().class_names);
    for (const auto& sink : own_sinks) inputs.sinks.push_back(sink.get());
    const auto& given = shared.input.sinks;
    inputs.sinks.insert(inputs.sinks.end(), given.begin(), given.end());
    if (shared.input.started) shared.input.started(plan, shared.checkpoint, lines);
    if (!shared.first_step.empty()) shared.input.debug(shared.first_step);
  }
  RunOutput output;
  output.is_first = is_first;
  const ReachedScope reached(is_first ? &shared.reached.figures : nullptr, state, output.loop,
                             parts);
  const double before_loop = shared.elapsed();
  output.loop = train_loop(state, parts, inputs);
  if (is_first && output.loop.ending == Ending::finished && shared.input.finished) {
    shared.input.finished();
  }
  output.summary = summarise(state, output.loop, parts);
  if (!is_first) return output;
  if (!output.loop.last) {  // an earlier start made the last update
    const auto logged = last_loss(shared.folder->log(), state.attempt);
    output.summary.final_loss = logged.value_or(output.summary.final_loss);
  }
  if (const auto peak = predicted_peak(shared.fitted)) {
    output.summary.predicted_peak_bytes = *peak + prepared.fit.standing_bytes;
  }
  if (output.loop.ending == Ending::finished) {
    const Dataset& train = *prepared.datasets.train;
    const Metadata model = describe_package(
        describe_model(prepared.config, train.info(), train.size()), state.task.facts);
    output.exported =
        export_weights(state, parts, shared.folder->path(), model, prepared.quantization.get());
    output.summary.weights = output.exported->file.filename().string();
  }
  output.summary.startup_seconds = before_loop + output.loop.first_step_seconds;
  output.summary.wall_seconds = shared.elapsed();
  const auto write_summary = [&] {
    shared.folder->write("summary.json", to_json(output.summary) + "\n");
    shared.reached.has_ended = true;
  };
  if (output.exported && prepared.quantization) {
    write_quantized(prepared, state, parts, shared.folder->path(), output, write_summary);
  } else {
    write_summary();
  }
  return output;
}

RunOutput run_threads(const Shared& shared, Task first) {
  const Prepared& prepared = shared.prepared;
  StatesInTurn states(std::move(first), [&] { return prepared.fit.make_task(prepared.config); });
  const auto make_state = [&](const Parts& parts) { return states.make(parts); };
  RunOutput output;
  on_thread_ranks(prepared.plan, [&](const Plan& plan, const std::shared_ptr<const Ranks>& ranks) {
    RunOutput own = run_rank(shared, plan, make_state, ranks);
    if (ranks->world().is_first()) output = std::move(own);
  });
  return output;
}

// Rank 0's config, with the keys that earlier starts changed on request; every rank can read its
// folder.
RunConfig agreed_config(Communicator& ranks, const RunFolder* folder, const RunInput& input) {
  if (ranks.world_size() == 1) return folder->config();
  const std::string mine = folder != nullptr ? join(folder->kept(), "\n") : "";
  const std::string kept = gather_texts(ranks, mine)[0];
  if (folder != nullptr) return folder->config();
  RunConfig config = input.config;
  std::vector<std::string> keys;
  for (std::string_view rest = kept; !rest.empty();) keys.emplace_back(take_line(rest));
  if (!keys.empty()) take_keys(config, recorded_config(input.folder), keys);
  return config;
}

// Call this before other ranks of this process begin, because a dry run allows no other thread.
std::string first_step_of(const Prepared& prepared,
                          const std::optional<std::filesystem::path>& checkpoint, Cursor start) {
  if (checkpoint) {
    const State run{.values = run_values_of(*checkpoint)};
    start = {.epoch = value_of<int64_t>(run, "epoch"),
             .consumed = value_of<int64_t>(run, "consumed")};
  }
  return first_step_text(
      prepared.plan, [&] { return prepared.fit.make_task(prepared.config); },
      *prepared.datasets.train, start);
}

Facts with_program(Facts facts, const std::optional<ModelProgram>& program) {
  if (program) {
    facts.emplace_back("the " + program->sort + " in model.path, with checksum", program->checksum);
  }
  return facts;
}

// `folder`: of rank 0, opened here. `reached`: as Shared has it.
RunOutput run_all(const RunInput& input, const Registry& registry,
                  const std::shared_ptr<Communicator>& ranks,
                  const std::function<double()>& elapsed, std::optional<RunFolder>& folder,
                  Reached& reached) {
  check_is_launched(input.config, *ranks);
  const bool is_first = ranks->rank() == 0;
  if (is_first) check_fork_folder(input.config, input.folder);
  // Holds the lock, so that no overlapping start resumes from what another still writes.
  if (is_first) folder.emplace(input.folder, input.config, input.requested);
  const auto checkpoint =
      agreed_checkpoint(*ranks, is_first ? folder->resume_from() : std::nullopt);
  RunConfig config = agreed_config(*ranks, folder ? &*folder : nullptr, input);
  // The source of a fork that has no checkpoint yet.
  auto source = checkpoint
                    ? std::nullopt
                    : agreed_fork(*ranks, [&] { return choose_fork(config, folder->has_begun()); });
  if (source) take_source(config, source->checkpoint);
  if (source && folder) folder->set_source(source->checkpoint);
  config.data.cache = token_cache_beside(input.folder).string();
  Prepared prepared = prepare(config, registry, checkpoint || source,
                              source ? start_of_fork(*source, config) : input.folder);
  const Dataset& train = *prepared.datasets.train;
  const Dataset* const eval = prepared.datasets.eval.get();
  Origin origin{.data = data_facts(train, eval), .changes = {}};
  const auto program = program_of(config.model, prepared.task);
  check_same_data(ranks, with_program(origin.data, program), train, eval);
  if (checkpoint && is_first) check_same_program(folder->path(), program);
  if (source && is_first) check_same_program(run_of_checkpoint(source->checkpoint), program);
  size_t num_old_changes = 0;
  std::optional<Fork> fork;
  const bool reads_files = !config.model.init_from.empty() || !config.model.from_hf.empty();
  if (!prepared.stages.empty() && !checkpoint && !source && (reads_files || prepared.optimizer)) {
    check_same_start(ranks, tensors_of(*prepared.task.module),
                     prepared.optimizer ? prepared.optimizer->state.tensors : TensorMap());
  }
  if (checkpoint) {
    const Origin saved = read_origin(*checkpoint);
    check_data_unchanged(*ranks, saved.data, origin.data, *checkpoint, config);
    origin.changes = changes_until(*checkpoint, config);
    origin.fork = saved.fork;
    num_old_changes = saved.changes.size();
  } else if (source) {
    fork = plan_fork(*source, config, prepared, origin.data);
    source->snapshot.reset();  // `fork` has it now, and closes its files
    origin.fork = fork->lines;
  }
  agree_on_limit(prepared, *ranks);
  const Fitted fitted = fit(prepared);
  prepared.fit.probed->clear();
  if (prepared.quantization && !checkpoint && !source) {
    begin_quantized_run(prepared, is_first);
  }
  prepared.plain = {};
  if (ranks->world_size() > 1) {
    // All ranks pass here together, so that a signal either ends all at once or is checked by all.
    gather_numbers(*ranks, {0});
    if (input.prepared) input.prepared();
  }
  add_origin(prepared.plan, origin);
  if (is_first) {
    folder->begin();
    if (fork) remove_unsaved(*folder);
    for (const std::string& remark : fitted.remarks) log(remark);
    for (size_t i = num_old_changes; i < origin.changes.size(); ++i)
      log(change_line(origin.changes[i]));
    if (!checkpoint) {
      keep_start(folder->path(), config, prepared.config.model, program, train.info());
    }
    folder->write("plan.txt", plan_text(prepared.plan));
  }
  const Shared shared{
      .input = input,
      .config = config,
      .accelerators = registry.accelerators,
      .prepared = prepared,
      .fitted = fitted,
      .folder = is_first ? &*folder : nullptr,
      .checkpoint = checkpoint,
      .origin = std::move(origin),
      .fork = fork ? &*fork : nullptr,
      .num_old_changes = num_old_changes,
      .elapsed = elapsed,
      .first_step = is_first && config.run.debug && input.debug
                        ? first_step_of(prepared, checkpoint, fork ? fork->start : Cursor())
                        : "",
      .reached = reached};
  const ShortWaits waits(prepared.plan.device.threads);
  Task task = std::move(prepared.task);
  if (prepared.plan.parallel.thread_ranks() > 1) return run_threads(shared, std::move(task));
  const auto make_state = [&](const Parts& parts) {
    return build_run_state(std::move(task), parts);
  };
  return with_mesh(ranks, prepared.plan.parallel, [&](const std::shared_ptr<const Ranks>& mesh) {
    return run_rank(shared, prepared.plan, make_state, mesh);
  });
}

// A failure is written while the folder is locked.
RunOutput run_or_note(const RunInput& input, const Registry& registry,
                      const std::shared_ptr<Communicator>& ranks,
                      const std::function<double()>& elapsed) {
  std::optional<RunFolder> folder;
  Reached reached;
  try {
    return run_all(input, registry, ranks, elapsed, folder, reached);
  } catch (...) {
    ranks->cancel(line_of_current());  // the others do not wait for the disk
    if (folder && !reached.has_ended) note_failure(*folder, reached.figures, elapsed());
    throw;
  }
}

}  // namespace

RunOutput run(const RunInput& input, const Registry& registry) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&input, start] { return input.started_at + seconds_since(start); };
  const World world = world_of(process_environment(), input.config.parallel.rendezvous);
  const auto tell_rendezvous = [&](bool waits) {
    if (input.rendezvous && world.size > 1) input.rendezvous(waits);
  };
  try {
    tell_rendezvous(true);
    return with_ranks(input.config, world, registry.accelerators,
                      [&](const std::shared_ptr<Communicator>& ranks) {
                        tell_rendezvous(false);
                        return run_or_note(input, registry, ranks, elapsed);
                      });
  } catch (const c10::OutOfMemoryError& error) {  // outside of any step
    end_without_memory(error);
  }
}

namespace {

// Plans the next start, in `folder` if one is given.
std::pair<Prepared, Fitted> next_start(const RunConfig& asked, const Registry& registry,
                                       const std::filesystem::path& folder,
                                       const std::set<std::string>& requested) {
  const auto checkpoint = folder.empty() ? std::nullopt : checkpoint_to_resume(folder);
  RunConfig config =
      folder.empty() ? asked : config_to_go_on(folder, asked, requested, checkpoint).config;
  const bool has_begun = !folder.empty() && std::filesystem::exists(folder / "config.toml");
  const auto source = checkpoint ? std::nullopt : choose_fork(config, has_begun);
  if (!folder.empty()) config.data.cache = token_cache_beside(folder).string();
  Prepared prepared = prepare(config, registry, checkpoint || source,
                              source ? start_of_fork(*source, config) : folder);
  const auto began = source ? run_of_checkpoint(source->checkpoint) : folder;
  if (checkpoint || source) {
    check_same_program(began, program_of(config.model, prepared.task));
  }
  const Datasets& datasets = prepared.datasets;
  Facts data;
  if (checkpoint || source) data = data_facts(*datasets.train, datasets.eval.get());
  Origin origin;
  if (checkpoint) {
    origin = read_origin(*checkpoint);
    check_data_unchanged(*single_communicator(), origin.data, data, *checkpoint, config);
    origin.changes = changes_until(*checkpoint, config);
  } else if (source) {
    origin.fork = plan_fork(*source, config, prepared, data).lines;
  }
  Fitted fitted = fit(prepared);
  add_origin(prepared.plan, origin);
  return {std::move(prepared), std::move(fitted)};
}

}  // namespace

Plan plan_only(const RunConfig& config, const Registry& registry,
               const std::filesystem::path& folder, const std::set<std::string>& requested) {
  return next_start(config, registry, folder, requested).first.plan;
}

PlannedMemory plan_memory_of(const RunConfig& config, const Registry& registry,
                             const std::filesystem::path& folder,
                             const std::set<std::string>& requested) {
  const auto [prepared, fitted] = next_start(config, registry, folder, requested);
  return {prepared.plan, memory_forecast(prepared.fit, fitted)};
}

}  // namespace tanren
