// A sink of your own for a run's reports: this one writes one row of a CSV file per epoch, for a
// spreadsheet. A sink gets plain data and has no access to the run, so it cannot change a number.
//   own_sink CONFIG.toml RUN_FOLDER TABLE.csv

#include "tanren/base/error.h"
#include "tanren/base/report.h"
#include "tanren/base/text.h"
#include "tanren/config/read_config.h"
#include "tanren/model/registry.h"
#include "tanren/run/run.h"

#include <filesystem>
#include <fstream>
#include <iostream>

namespace {

class EpochTable : public tanren::Sink {
 public:
  // Appends to an existing file: a resumed run reports only new epochs.
  explicit EpochTable(const std::filesystem::path& file) : file_(file) {
    const bool is_new = !std::filesystem::exists(file);
    out_.open(file, std::ios::app);
    if (is_new) out_ << "epoch,steps,skipped,mean_loss,learning_rate,samples_per_second\n";
    check();
  }
  ~EpochTable() override { end_epoch(); }
  EpochTable(const EpochTable&) = delete;
  EpochTable& operator=(const EpochTable&) = delete;

  void step(const tanren::StepReport& report) override {
    if (report.epoch != epoch_) end_epoch();
    epoch_ = report.epoch;
    const tanren::ObjectiveReport& objective = report.objectives.front();
    if (objective.verdict.action == tanren::Action::apply) {
      steps_ += 1;
      loss_sum_ += objective.loss;
    } else {
      skipped_ += 1;
    }
    learning_rate_ = objective.learning_rate;
    samples_ += static_cast<double>(report.samples);
    seconds_ += report.seconds;
  }

  // Called before each checkpoint counts as complete.
  void flush() override {
    out_.flush();
    check();
  }

 private:
  void end_epoch() {
    if (steps_ + skipped_ == 0) return;
    out_ << epoch_ << "," << steps_ << "," << skipped_ << ","
         << (steps_ > 0 ? tanren::to_text(loss_sum_ / static_cast<double>(steps_)) : "") << ","
         << tanren::to_text(learning_rate_) << "," << samples_ / seconds_ << "\n";
    steps_ = skipped_ = 0;
    loss_sum_ = samples_ = seconds_ = 0;
  }

  // An exception ends the run with exit code 1; the run can be resumed.
  void check() const {
    if (!out_) {
      throw tanren::RunError("[epoch_table] cannot write " + file_.string() +
                             "; name a file that can be written");
    }
  }

  std::filesystem::path file_;
  std::ofstream out_;
  int64_t epoch_ = 0, steps_ = 0, skipped_ = 0;
  double loss_sum_ = 0, learning_rate_ = 0, samples_ = 0, seconds_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "own_sink CONFIG.toml RUN_FOLDER TABLE.csv\n";
    return 2;
  }
  try {
    const tanren::ModelRegistry models;
    tanren::RunInput input;
    input.config = tanren::read_config(argv[1], /*sets=*/{}, models.kinds());
    input.folder = argv[2];
    EpochTable table(argv[3]);
    input.sinks = {&table};
    tanren::run(input, models);
  } catch (const tanren::InputError& error) {
    std::cerr << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
