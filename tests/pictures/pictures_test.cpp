// Whole runs on pairs of pictures: what sinks show changes no number of a run, and the outputs of
// an evaluation become files.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/formats/png.h"
#include "tanren/formats/safetensors.h"
#include "tanren/run/write_outputs.h"
#include "tests/support/loop_run.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

class KeptImages final : public Sink {
 public:
  void step(const StepReport&) override {}
  void images(const ImageReport& report) override { reports.push_back(report); }
  std::vector<ImageReport> reports;
};

// Pairs of pictures of 12 × 10 pixels. Two pairs are in a folder of their own, to be held out.
class Pictured : public Loop {
 protected:
  Pictured() {
    for (int i = 0; i < 14; ++i) {
      const std::string below = i < 8 ? "train/" : "held/";
      add(below + "inputs/" + name_of(i), i);
      add(below + "targets/" + name_of(i), 3 * i + 1);
    }
  }

  static std::string name_of(int i) {
    return (i % 2 == 0 ? "even/" : "") + std::to_string(i) + ".png";
  }
  void add(const std::string& name, int seed) const {
    std::vector<uint8_t> rgb(12 * 10 * 3);
    for (size_t i = 0; i < rgb.size(); ++i) {
      rgb[i] = static_cast<uint8_t>(seed * 31 + static_cast<int>(i) * (seed % 5 + 1));
    }
    const fs::path file = folder_.path() / name;
    fs::create_directories(file.parent_path());
    write_file(file, png_of(rgb, 12, 10));
  }
  RunConfig config(bool evaluates, const std::string& model = "mlp") const {
    auto config = tiny_config(model);
    config.run.steps = 6;
    config.model.loss = "l1";
    config.model.dropout = 0.3;
    config.batch.global_batch = "4";
    config.precision.mode = "fp32";
    config.evaluate.metrics = {"psnr", "ssim", "mse"};
    SourceOptions& train = config.data.train;
    train = SourceOptions();
    train.kind = "pairs";
    train.path = (folder_.path() / "train").string();
    train.size = {10, 12};
    train.crop = "shift";
    train.pad = 2;
    train.flip = 0.5;
    if (evaluates) {
      config.data.eval = train;
      config.data.eval.path = (folder_.path() / "held").string();
      config.data.eval.crop = "center";
      config.data.eval.flip = 0;
      config.data.eval.pad = 0;
      config.evaluate.every = 3;
    }
    return config;
  }
  void expect_same_weights(const std::string& a, const std::string& b) const {
    const auto of = [this](const std::string& run) {
      return read_safetensors(folder_.path() / run / "model.safetensors").tensors;
    };
    const auto other = of(b);
    for (const auto& [name, tensor] : of(a)) EXPECT_TRUE(at::equal(tensor, other.at(name))) << name;
  }
  std::set<std::string> files_in(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / folder)) {
      if (!entry.is_directory()) {
        names.insert(entry.path().lexically_relative(folder_.path() / folder).string());
      }
    }
    return names;
  }
};

TEST_F(Pictured, a_task_without_pictures_is_refused_before_anything_begins) {
  auto config = looped_config(1);
  config.metrics.images_every = 2;
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { go(config, "run"); }),
                         "[plan] metrics.images_every is 2, and the outputs of this task are no");
  EXPECT_FALSE(fs::exists(folder_.path() / "run"));
}

TEST_F(Pictured, they_change_no_number_of_a_run) {
  for (const bool evaluates : {true, false}) {
    for (const char* average : {"none", "ema"}) {
      const std::string run = std::string(evaluates ? "eval-" : "train-") + average;
      auto config = this->config(evaluates);
      config.average.kind = average;
      if (std::string(average) == "ema") config.average.decay = 0.5;
      go(config, run + "-plain");
      config.metrics.images_every = 2;
      KeptImages kept;
      go(config, run + "-shown", nullptr, {&kept});
      expect_same(run + "-plain", run + "-shown");
      expect_same_weights(run + "-plain", run + "-shown");
      EXPECT_FALSE(fs::exists(folder_.path() / (run + "-plain") / "images"));
      EXPECT_EQ(files_in(run + "-shown/images"),
                (std::set<std::string>{"step-000002.png", "step-000004.png", "step-000006.png"}));
      ASSERT_EQ(kept.reports.size(), 3U);
      for (const auto& report : kept.reports) {
        ASSERT_EQ(report.pictures.size(), 4U);
        EXPECT_EQ(report.pictures[1].tag,
                  std::string(evaluates ? "eval" : "train") + "/pictures/1");
        EXPECT_EQ(report.pictures[1].width, 36);
        EXPECT_EQ(report.pictures[1].height, 10);
      }
      if (evaluates) {
        // Each report has the same samples: input and target stay, and the output is learned.
        const auto &first = kept.reports[0].pictures[0].rgb,
                   &last = kept.reports[2].pictures[0].rgb;
        const auto width = std::ptrdiff_t{36} * 3, two = std::ptrdiff_t{24} * 3;
        EXPECT_TRUE(std::equal(first.begin(), first.begin() + two, last.begin()));
        EXPECT_FALSE(std::equal(first.begin() + two, first.begin() + width, last.begin() + two));
      }
    }
  }
}

TEST_F(Pictured, a_resumed_run_shows_the_same_pictures) {
  auto config = this->config(true);
  config.metrics.images_every = 2;
  config.checkpoint.every = 3;
  go(config, "whole");
  config.run.stop_after = 3;
  go(config, "parts");
  config.run.stop_after.reset();
  go(config, "parts");
  expect_same("whole", "parts");
  expect_same_weights("whole", "parts");
  for (const auto& name : files_in("whole/images")) {
    EXPECT_EQ(read_file(folder_.path() / "whole/images" / name),
              read_file(folder_.path() / "parts/images" / name))
        << name;
  }
}

TEST_F(Pictured, ranks_show_what_one_rank_shows) {
  for (const int64_t zero : {0, 1, 2}) {
    auto config = this->config(true);
    config.metrics.images_every = 3;
    go(config, "one");
    config.parallel.ranks = "threads";
    config.parallel.replicas = 2;
    config.parallel.zero = zero;
    KeptImages kept;
    const std::string run = "ranks-" + std::to_string(zero);
    go(config, run, nullptr, {&kept});
    EXPECT_EQ(files_in("one/images"), files_in(run + "/images"));
    EXPECT_EQ(kept.reports.size(), 2U);
    fs::remove_all(folder_.path() / "one");
  }
}

TEST_F(Pictured, an_evaluation_writes_a_file_for_each_sample_named_like_its_input) {
  const auto config = this->config(true);
  go(config, "run");
  const auto registry = test_registry();
  const fs::path run = folder_.path() / "run", out = folder_.path() / "out";
  const auto checkpoint = chosen_checkpoint(config, run);
  const auto plain = evaluate_checkpoint(config, checkpoint, registry, nullptr);
  const auto written = evaluate_checkpoint(config, checkpoint, registry, nullptr, out);
  EXPECT_EQ(plain.report.values, written.report.values);
  EXPECT_EQ(plain.report.values[1].first, "psnr");
  EXPECT_GT(plain.report.values[1].second, 0);
  EXPECT_EQ(files_in("out"), (std::set<std::string>{"even/8.png", "9.png", "even/10.png", "11.png",
                                                    "even/12.png", "13.png"}));
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] {
                           evaluate_checkpoint(config, checkpoint, registry, nullptr, out);
                         }),
                         "out is there and not an empty folder; name a new one");
  // The whole model, on the data that its own folder names, gives the same files.
  const fs::path whole = run / "model.tanren.safetensors", again = folder_.path() / "again";
  evaluate_whole_model(whole, config.data.eval.path, {}, registry, nullptr, again);
  for (const auto& name : files_in("out")) {
    EXPECT_EQ(read_file(out / name), read_file(again / name)) << name;
  }
}

// A dataset whose samples have the names that a test gives them.
struct Named : Dataset {
  explicit Named(std::vector<std::string> of) : names(std::move(of)) {}
  int64_t size() const override { return static_cast<int64_t>(names.size()); }
  DataInfo info() const override { return {}; }
  Collated collate(const std::vector<int64_t>&) const override { return {}; }
  std::string sample_name(int64_t index) const override {
    return names[static_cast<size_t>(index)];
  }
  std::vector<std::string> names;
};

TEST_F(Pictured, outputs_have_names_of_their_own_below_the_folder) {
  Task task;
  task.metrics = picture_metrics();
  const auto problem = [&](std::vector<std::string> names) {
    const Named data(std::move(names));
    return error_of<ConfigError>(
        [&] { outputs_writer(folder_.path() / "named", data, task, Ranks()); });
  };
  TANREN_EXPECT_CONTAINS(problem({"a", "b/../../c"}), "b/../../c.png, leads out of the folder");
  TANREN_EXPECT_CONTAINS(problem({"a", "/b"}), "/b.png, leads out of the folder");
  TANREN_EXPECT_CONTAINS(problem({"a", "b", "./a"}), "./a.png, is another sample's, too");
  EXPECT_FALSE(fs::exists(folder_.path() / "named"));
}

TEST_F(Pictured, a_folder_that_holds_something_is_refused_on_every_rank) {
  Task task;
  task.metrics = picture_metrics();
  const Named data({"a", "b"});
  std::atomic<int> refused = 0;
  on_ranks(2, [&](Communicator& comm) {
    const std::shared_ptr<Communicator> shared(&comm, [](Communicator*) {});
    const Ranks ranks(shared, ParallelPlan{.rank = comm.rank(), .world_size = 2});
    try {
      outputs_writer(folder_.path() / "held", data, task, ranks);
    } catch (const ConfigError&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

TEST_F(Pictured, show_what_an_evaluation_writes) {
  for (const char* average : {"none", "ema"}) {
    auto config = this->config(true);
    config.metrics.images_every = 6;
    config.evaluate.batch = 4;  // the samples that are shown
    config.average.kind = average;
    if (std::string(average) == "ema") config.average.decay = 0.5;
    KeptImages kept;
    go(config, average, nullptr, {&kept});
    const fs::path run = folder_.path() / average,
                   out = folder_.path() / ("of-" + run.stem().string());
    evaluate_checkpoint(config, chosen_checkpoint(config, run), test_registry(), nullptr, out);
    ASSERT_EQ(kept.reports.size(), 1U);
    const std::vector<std::string> names = {"11", "13", "9", "even/10"};  // in order
    for (size_t i = 0; i < names.size(); ++i) {
      const auto& rgb = kept.reports[0].pictures[i].rgb;
      std::vector<uint8_t> output;
      for (int64_t y = 0; y < 10; ++y) {
        const auto row = rgb.begin() + y * 36 * 3;
        output.insert(output.end(), row + 24 * 3, row + 36 * 3);
      }
      EXPECT_EQ(read_file(out / (names[i] + ".png")), png_of(output, 12, 10)) << names[i];
    }
  }
}

TEST_F(Pictured, a_task_without_pictures_writes_none) {
  const auto config = looped_config(1);
  go(config, "run");
  const auto checkpoint = chosen_checkpoint(config, folder_.path() / "run");
  const fs::path out = folder_.path() / "out";
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] {
                           evaluate_checkpoint(config, checkpoint, test_registry(), nullptr, out);
                         }),
                         "[eval] --out writes the outputs as pictures, and those of this task");
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace tanren::testing
