#include "tanren/predict/predict_file.h"

#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/log.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/data/text/line_reader.h"
#include "tanren/predict/agreed.h"
#include "tanren/predict/answer_writer.h"
#include "tanren/predict/check_paths.h"
#include "tanren/predict/described_model.h"
#include "tanren/predict/encoder.h"
#include "tanren/predict/fit_batch.h"
#include "tanren/predict/growing_file.h"
#include "tanren/predict/made_from.h"
#include "tanren/predict/row_window.h"
#include "tanren/predict/rows.h"
#include "tanren/predict/window.h"
#include "tanren/run/connect.h"
#include "tanren/run/prepare_whole.h"
#include "tanren/run/short_waits.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/on_ranks.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kBatchesAWindow = 16;

// One call of predict_file on one rank.
class Job {
 public:
  Job(const PredictInput& input, fs::path out, const Registry& registry, DescribedModel model,
      const std::shared_ptr<Communicator>& ranks)
      : input_(input),
        registry_(registry),
        model_(std::move(model)),
        config_(model_.description.config),
        info_(model_.description.info),
        skips_(config_.predict.broken == "skip"),
        ranks_(ranks),
        alone_(ranks, {}),
        out_(std::move(out)),
        is_pipe_(is_pipe(input.source)) {}

  PredictOutput run() {
    const auto start = std::chrono::steady_clock::now();
    try {
      open_file();
      prepare_model();
      const bool is_alike = done_.rows == 0 || done_.computed == "-" || done_.computed == computed_;
      if (!is_alike) {
        begin_again(
            fmt::format("was begun with other settings ({}, now {})", done_.computed, computed_));
      } else if (!skip_done_rows()) {
        begin_again("was begun from other rows than those of " + source_name());
      }
      predict_rows();
    } catch (const StoppedReading&) {
      output_.stopped = true;
      output_.rows = output_.began_at = done_.rows;
      if (file_ != nullptr) output_.written = file_->progress().written;
    }
    const bool has_part = file_ != nullptr && output_.stopped;
    output_.out = !has_part ? out_ : output_.rows > 0 ? file_->partial() : fs::path();
    output_.is_first = alone_.world().is_first();
    output_.weights = model_.weights;
    output_.seconds = seconds_since(start);
    return output_;
  }

 private:
  // Before the costly work: checks that all ranks have the same model and that the file can be
  // written, and finds where to resume.
  void open_file() {
    format_ = out_.empty() ? TableFormat::csv : table_format(out_, "predict");
    begin_.model = model_hash(model_);
    begin_.settings = settings_hash(config_, out_);
    begin_.batch = 1;
    alone_.check_alike(
        {{"weights (evaluate.checkpoint names those of a run that goes on)", begin_.model},
         {"settings", begin_.settings}});
    const std::string found = agreed(alone_, [&] {
      if (out_.empty()) return std::string("0 0 - -");
      file_ = std::make_unique<GrowingFile>(out_, begin_, input_.replaces);
      const Progress& progress = file_->progress();
      return fmt::format("{} {} {} {}", progress.rows, progress.batch,
                         progress.source.empty() ? "-" : progress.source,
                         progress.computed.empty() ? "-" : progress.computed);
    });
    std::istringstream(found) >> done_.rows >> done_.batch >> done_.source >> done_.computed;
  }

  void prepare_model() {
    prepared_ = prepared_model(model_, input_.model, registry_);
    check_predicts(prepared_.task);
    computed_ = computed_in(prepared_.plan);
    alone_.check_alike({{"device and precision", computed_}});
    form_ = answer_form(prepared_.task, config_.model, info_, "predict");
    encoder_ = std::make_unique<Encoder>(config_, info_, form_.kind);
    open_source();
    const Row* first = rows_->peek();
    if (first == nullptr) {
      throw DataError("[predict] " + source_name() + " holds no rows; give it some");
    }
    probe_ = probe_dataset(encoder_->probe(rows_->source().largest(first->sample)), info_);
    prepared_.fit.dataset = probe_.get();
    fit_threads(prepared_);
    // The windows of a resumed file have the batch size of its earlier rows. The batch that is
    // asked for and fits only limits a forward.
    const int64_t asked = asked_batch(config_, prepared_.plan);
    batch_ = done_.rows > 0 ? done_.batch : asked;
    most_ = fitted_batch(prepared_, asked);
  }

  std::string source_name() const {
    return input_.source == "-" ? "standard input" : input_.source.string();
  }

  void open_source() {
    // All sources check the stop while they are opened, except texts that are tokenized as a whole.
    const std::string& kind = config_.data.eval.kind;
    const bool tokenizes = kind == "text" || kind == "tokens";
    if (!tokenizes) hear();
    rows_.reset();
    rows_ = std::make_unique<RowReader>(open_rows(input_.source, config_, info_, registry_.datasets,
                                                  form_.kind, {.stop = input_.stop, .out = out_}),
                                        skips_);
    if (tokenizes) hear();
  }

  // Runs at the same time on all ranks, so that a signal either ends all of them at once or is
  // checked by all.
  void hear() const {
    on_any_rank(false, alone_);
    if (input_.hears) input_.hears();
  }

  // Skips the rows that are done. Returns rank 0's verdict on all ranks: false if the rows are not
  // those that were done. A rank that finds fewer rows takes part in as many exchanges as the
  // others.
  bool skip_done_rows() {
    if (done_.rows == 0) return true;
    constexpr int64_t kLookAtStop = 4096;
    int64_t read = 0;
    std::exception_ptr error;
    std::string error_text;
    Row row;
    for (int64_t i = 0; i < done_.rows; ++i) {
      if (i % kLookAtStop == 0) {
        const bool stops = input_.stop != nullptr && input_.stop->load();
        if (on_any_rank(stops, alone_)) throw StoppedReading();
        if (!on_any_rank(read == i, alone_)) break;  // no rank has more
      }
      try {
        if (read == i && rows_->next(row)) ++read;
      } catch (const InputError& wrong) {
        error = std::current_exception();
        error_text = wrong.what();
      }
    }
    alone_.check_alike({{"done rows in SOURCE:", to_text(read)},
                        {"done rows in SOURCE of hash", hash_text(rows_->source().print())},
                        {"an error in SOURCE:", error_text}});
    if (error) std::rethrow_exception(error);
    return agreed(alone_, [&] {
             const bool alike = hash_text(rows_->source().begun()) == done_.source;
             return std::string(read == done_.rows && alike ? "yes" : "no");
           }) == "yes";
  }

  void begin_again(const std::string& problem) {
    agreed(alone_, [&] {
      // A pipe cannot be read again.
      if (is_pipe_ || !file_->begins_again(begin_)) {
        throw ConfigError("[predict] " + file_->partial().string() + " " + problem +
                          "; remove it and " + file_->state().string() +
                          (is_pipe_ ? "" : ", or begin again with --force"));
      }
      return std::string();
    });
    done_ = {};
    open_source();
    batch_ = asked_batch(config_, prepared_.plan);
  }

  // A program's own kind of model may not give its number of outputs. One sample then decides it,
  // because rows without an answer would give a wrong number.
  void make_writer(WindowPredictor& predictor) {
    if (form_.width == 0 && form_.kind != AnswerKind::tokens) {
      form_.width = predictor.width(probe_->collate({0}).batch);
    }
    if (form_.kind == AnswerKind::values) form_.width = std::max<int64_t>(form_.width, 1);
    writer_.emplace(format_, rows_->source().columns(), form_, info_,
                    config_.predict.scores == "all");
  }

  void predict_rows() {
    const ShortWaits waits(prepared_.plan.device.threads);
    Parts parts = build_parts(prepared_.plan, input_.stop, registry_.accelerators);
    parts.ranks = std::make_shared<Ranks>(ranks_, prepared_.plan.parallel);
    RunState state = whole_state(std::move(prepared_.task), parts, model_.read.metadata);
    state.settle();
    const MustSucceedScope must_succeed;
    const DeviceRetryScope retries(parts.recovery->reserve());
    const at::NoGradGuard no_grad;
    const EvalModeScope eval_mode(*state.task.module);
    WindowPredictor predictor(state, parts, *encoder_, form_, batch_, most_);
    progress_ = file_ != nullptr ? file_->progress() : begin_;
    progress_.batch = batch_;
    progress_.rows = done_.rows;
    progress_.computed = computed_;
    // A file that an older version began does not say how many rows it has.
    counts_written_ =
        form_.kind == AnswerKind::tokens && (done_.rows == 0 || progress_.written > 0);
    make_writer(predictor);
    output_.began_at = done_.rows;
    agreed(alone_, [&] {
      if (file_ != nullptr) file_->open();
      return std::string();
    });
    try {
      while (predict_window(predictor, parts)) {
      }
    } catch (const StoppedReading&) {
      output_.stopped = true;
    } catch (...) {
      if (file_ != nullptr) leave_quietly();
      throw;
    }
    output_.rows = progress_.rows;
    output_.broken = progress_.broken;
    output_.written = progress_.written;
    tell_of_inputs();
    if (file_ == nullptr) return;
    if (output_.stopped) {
      file_->leave();
    } else {
      file_->finish(turn());
    }
  }

  // How the part becomes the file, if it is not one yet.
  GrowingFile::Turn turn() {
    if (format_ != TableFormat::tensors) return {};
    return [this](const fs::path& part, const fs::path& file) { writer_->write(part, file); };
  }

  void tell_of_inputs() const {
    if (!alone_.world().is_first()) return;
    if (cut_ > 0) {
      log(fmt::format("[predict] texts that were cut to the {} tokens that the model reads: {}",
                      config_.data.eval.context, cut_));
    }
    const std::string unknown = rows_->source().unknown_text();
    if (unknown.empty()) return;
    log("[predict] texts of categories that training did not have, which count as none: " +
        unknown);
  }

  void leave_quietly() {
    try {
      file_->leave();
    } catch (const std::exception&) {  // what was saved before still counts
    }
  }

  // False after the last window. Rows from a pipe cannot be read again, so they are finished even
  // after a stop.
  bool predict_window(WindowPredictor& predictor, const Parts& parts) {
    output_.stopped = !is_pipe_ && on_any_rank(parts.stop_requested(), *parts.ranks);
    if (output_.stopped) return false;
    RowWindow read = rows_->window(kBatchesAWindow * batch_);
    check_same_rows(read, *parts.ranks);
    if (!read.rows.empty()) {
      std::vector<Sample> samples;
      for (Row& row : read.rows) {
        samples.push_back(row.broken.empty() ? std::move(row.sample) : Sample());
      }
      WindowAnswers window = predictor.predict(std::move(samples), /*may_stop=*/!is_pipe_);
      output_.stopped = window.stopped;
      if (window.stopped) return false;
      cut_ += window.cut;
      write_window(read, window);
    }
    if (read.error) std::rethrow_exception(read.error);  // after the rows before it are written
    output_.stopped = read.stopped;
    return !read.rows.empty() && !read.stopped;
  }

  // If a row is refused, the rows before it are still written.
  void write_window(const RowWindow& read, WindowAnswers& window) {
    std::string text = progress_.rows == 0 ? writer_->header() : "";
    std::exception_ptr refused;
    size_t count = 0;
    try {
      for (; count < read.rows.size(); ++count) {
        const Row& row = read.rows[count];
        const std::string broken = writer_->problem_of(row, window.broken[count]);
        if (!broken.empty() && !skips_) refuse_row(row.place, broken);
        auto& tokens = window.answers[count].tokens;
        if (row.positions >= 0 && row.positions < std::ssize(tokens)) {
          tokens.resize(static_cast<size_t>(row.positions));
        }
        const Answer* const answer = broken.empty() ? &window.answers[count] : nullptr;
        if (alone_.world().is_first()) writer_->add(text, row, answer);
        if (answer == nullptr) ++progress_.broken;
        if (counts_written_) progress_.written += answer == nullptr ? 1 : std::ssize(tokens);
      }
    } catch (const DataError&) {
      refused = std::current_exception();
    }
    if (count > 0) {
      progress_.rows += static_cast<int64_t>(count);
      progress_.source = hash_text(read.begun[count - 1]);
      if (file_ != nullptr) {
        file_->append(text, progress_);
      } else if (alone_.world().is_first()) {
        input_.print(text);
      }
    }
    if (refused) std::rethrow_exception(refused);
  }

  const PredictInput& input_;
  const Registry& registry_;
  DescribedModel model_;
  const RunConfig& config_;
  const DataInfo& info_;
  bool skips_;
  std::shared_ptr<Communicator> ranks_;
  Ranks alone_;   // for exchanges before the plan
  fs::path out_;  // empty: rows go to input_.print
  bool is_pipe_;  // what is read cannot be read again
  TableFormat format_ = TableFormat::csv;
  Progress begin_, done_, progress_;
  std::string computed_;               // computed_in() of this start
  std::unique_ptr<GrowingFile> file_;  // on rank 0
  Prepared prepared_;
  AnswerForm form_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<Dataset> probe_;
  std::unique_ptr<RowReader> rows_;
  std::optional<AnswerWriter> writer_;
  int64_t batch_ = 1, most_ = 1;
  int64_t cut_ = 0;  // texts that were longer than the model reads
  bool counts_written_ = false;
  PredictOutput output_;
};

}  // namespace

PredictOutput predict_file(const PredictInput& input, const Registry& registry) {
  const fs::path out = input.out.empty() ? predictions_file_of(input.source) : input.out;
  if (out.empty() && !input.print) {
    throw ConfigError("[predict] nothing takes the rows of " + input.source.string() +
                      "; name a file for them");
  }
  check_paths(input, out, world_of(process_environment(), "tcp://localhost:29500").size);
  DescribedModel model = described_model(input.model, input.sets, registry);
  const RunConfig config = model.description.config;
  const World world = world_of(process_environment(), config.parallel.rendezvous);
  return with_ranks(
      config, world, registry.accelerators, [&](const std::shared_ptr<Communicator>& ranks) {
        model =
            agreed_model(std::move(model), input.model, input.sets, registry, *ranks, "predict");
        return Job(input, out, registry, std::move(model), ranks).run();
      });
}

}  // namespace tanren
