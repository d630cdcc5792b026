// Samples of several shapes, and a model with a second head: the trained model can be opened. Issue
// 22.
#include "tests/own/own_program.h"

#include "tanren/base/file.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/whole_model.h"
#include "tanren/predict/predictor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>

namespace tanren::testing {
namespace {

// Sequences of six numbers per step, padded to the longest of the batch.
void make_sequences(Collated& made, const std::vector<int64_t>& indices) {
  int64_t longest = 0;
  for (const int64_t index : indices) longest = std::max(longest, 2 + index % 3);
  const at::Tensor steps = at::arange(1, longest * 6 + 1).view({1, longest, 6});
  made.batch.fields.set("inputs", at::sin(steps * made.batch.ids.view({-1, 1, 1}).to(at::kFloat)));
}

Task mean_task(const ModelOptions& options, const DataInfo& info) {
  auto net = std::make_shared<OwnNet>();
  const auto forward = [net](const at::Tensor& x) { return net->forward(x.mean(1)); };
  return supervised(net, forward, options, info);
}

struct Sequences : OwnProgram {
  Sequences() {
    info.input_shape = {kAnySize, 6};
    spoil_train = spoil_eval = make_sequences;
    factory = mean_task;
    evaluates = true;
  }
};

TEST(OwnShapes, that_vary_are_trained_and_every_verb_opens_the_result) {
  Sequences program;
  ASSERT_EQ(program.go("run"), 0) << program.err;
  for (const std::string verb : {"plan", "summary"}) {
    EXPECT_EQ(program.go(verb), 0) << verb << ": " << program.err;
  }
  const std::filesystem::path file = program.run() / "model.tanren.safetensors";
  const auto figures = [&](const std::filesystem::path& what) {
    EXPECT_EQ(program.go("eval", {what.string()}), 0) << program.err;
    return program.out.substr(std::min(program.out.find(", 24 samples"), program.out.size()));
  };
  const std::string of_run = figures(program.run());
  TANREN_EXPECT_CONTAINS(of_run, "accuracy");
  EXPECT_EQ(figures(file), of_run);
  const std::string folder = program.at("python").string();
  EXPECT_EQ(program.go({"own", "convert", program.run().string(), folder}), 0) << program.err;
  TANREN_EXPECT_CONTAINS(read_file(folder + "/architecture.json"), "-1,");
  EXPECT_EQ(program.go({"own", "run", program.run().string(), "--quiet", "--set", "run.steps=6"}),
            0)
      << program.err;

  ModelRegistry models;
  models.add("own", mean_task);
  DatasetRegistry datasets;
  datasets.add("points", [](const SourceOptions&, const std::string&, const DataInfo* train) {
    return std::make_unique<OwnPoints>(make_sequences, *train);
  });
  const WholeModel model = load_model(file, Registry(std::move(models), std::move(datasets)));
  EXPECT_EQ(model.info.input_shape, (std::vector<int64_t>{kAnySize, 6}));
  const at::NoGradGuard no_grad;
  const Batch batch = model.open("")->collate({0, 1, 2}).batch;
  EXPECT_EQ(model.task.predict(batch).outputs.sizes(), (at::IntArrayRef{3, 3}));
}

TEST(OwnShapes, that_vary_are_predicted_as_each_sample_alone) {
  Sequences program;
  ASSERT_EQ(program.go("run"), 0) << program.err;
  const std::string table = program.at("p.csv").string(), source = program.at("run.toml").string();
  EXPECT_EQ(program.go("predict", {program.run().string(), source, "--quiet", "--out", table}), 0)
      << program.err;
  ModelRegistry models;
  models.add("own", mean_task);
  DatasetRegistry datasets;
  datasets.add("points", [](const SourceOptions&, const std::string&, const DataInfo* train) {
    return std::make_unique<OwnPoints>(make_sequences, *train);
  });
  WholeModel model = load_model(program.run() / "model.tanren.safetensors",
                                Registry(std::move(models), std::move(datasets)));
  const at::NoGradGuard no_grad;
  const OwnPoints points(make_sequences, program.info);
  std::string expected = "row,label\n";
  std::vector<Sample> samples;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < points.size(); ++i) {
    const Batch one = points.collate({i}).batch;
    labels.push_back(model.task.predict(one).outputs.argmax(1).item<int64_t>());
    expected += std::to_string(i) + "," + std::to_string(labels.back()) + "\n";
    TensorMap tensors;
    tensors.set("inputs", one["inputs"]);
    samples.push_back(Sample::of_tensors(tensors));
  }
  std::istringstream lines(read_file(table));
  std::string told;
  for (std::string line; std::getline(lines, line);) {
    told += line.substr(0, line.rfind(',')) + "\n";
  }
  EXPECT_EQ(told, expected);
  const Predictor predictor(std::move(model));
  const auto answers = predictor.predict(samples);
  ASSERT_EQ(answers.size(), labels.size());
  for (size_t i = 0; i < labels.size(); ++i) EXPECT_EQ(answers[i].label, labels[i]);
}

// If nothing names the number of outputs, it is taken from the first answers. A start that finds
// all rows done computes no answer.
TEST(OwnShapes, that_nobody_names_are_known_to_a_start_that_only_puts_the_file_together) {
  OwnProgram program;
  program.info.outputs = 0;
  program.factory = [](const ModelOptions& options, DataInfo info) {
    info.outputs = 3;
    Task task = own_task(options, info);
    task.classes = 0;
    return task;
  };
  ASSERT_EQ(program.go("run"), 0) << program.err;
  const std::string file = program.at("p.safetensors").string();
  const std::vector<std::string> words{
      program.run().string(), program.at("run.toml").string(), "--out", file, "--set",
      "predict.scores=all"};
  {
    const FullDiskScope full(650);  // the rows have 576 bytes, the file more
    EXPECT_EQ(program.go("predict", words), 2) << program.out;
    TANREN_EXPECT_CONTAINS(program.err, "p.safetensors");
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(std::filesystem::file_size(file + ".partial"), 576u);
  EXPECT_EQ(program.go("predict", words), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out, "24 rows (went on after row 24)");
  const SafetensorsFile read = read_safetensors(file);
  EXPECT_EQ(read.tensors.at("label").sizes(), at::IntArrayRef({24}));
  EXPECT_EQ(read.tensors.at("scores").sizes(), (at::IntArrayRef{24, 3}));
  EXPECT_TRUE(at::allclose(read.tensors.at("scores").sum(1), at::ones({24})));
}

// Issue 26: after a first window without any answer, predict decided that there are no outputs.
TEST(OwnShapes, that_nobody_names_are_not_those_of_rows_without_an_answer) {
  OwnProgram program;
  program.info.outputs = 0;
  program.factory = [](const ModelOptions& options, DataInfo info) {
    info.outputs = 3;
    Task task = own_task(options, info);
    task.classes = 0;
    return task;
  };
  ASSERT_EQ(program.go("run"), 0) << program.err;
  program.spoil_eval = [](Collated& collated, const std::vector<int64_t>& indices) {
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < 20) collated.batch["inputs"][static_cast<int64_t>(i)].fill_(NAN);
    }
  };
  const std::string file = program.at("p.csv").string();
  // A window has 16 rows.
  EXPECT_EQ(program.go("predict", {program.run().string(), program.at("run.toml").string(), "--out",
                                   file, "--set", "predict.scores=all", "--set",
                                   "predict.broken=skip", "--set", "evaluate.batch=1"}),
            0)
      << program.err;
  std::istringstream lines(read_file(file));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "row,label,score,score_0,score_1,score_2");
  for (int i = 0; std::getline(lines, line); ++i) {
    EXPECT_EQ(line == std::to_string(i) + ",,,,,", i < 20) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 5) << line;
  }
}

// Issue 26: the dry run and the number of outputs used the first row, even if it could not be read.
TEST(OwnShapes, that_nobody_names_are_those_of_a_row_that_could_be_read) {
  OwnProgram program;
  program.info.outputs = 0;
  program.factory = [](const ModelOptions& options, DataInfo info) {
    info.outputs = 3;
    Task task = own_task(options, info);
    task.classes = 0;
    return task;
  };
  ASSERT_EQ(program.go("run"), 0) << program.err;
  program.spoil_eval = [](Collated& collated, const std::vector<int64_t>& indices) {
    if (indices.size() != 1 || indices[0] != 0) return;
    for (const char* name : {"inputs", "labels"}) {
      collated.batch.fields.set(name, collated.batch[name].narrow(0, 0, 0));
    }
    collated.batch.ids = collated.batch.ids.narrow(0, 0, 0);
  };
  const std::string file = program.at("p.csv").string();
  EXPECT_EQ(
      program.go("predict", {program.run().string(), program.at("run.toml").string(), "--out", file,
                             "--set", "predict.scores=all", "--set", "predict.broken=skip"}),
      0)
      << program.err;
  TANREN_EXPECT_CONTAINS(program.out, "24 rows, 1 of them broken");
  const std::string text = read_file(file);
  EXPECT_TRUE(text.starts_with("row,label,score,score_0,score_1,score_2\n0,,,,,\n1,")) << text;
}

TEST(OwnShapes, that_vary_are_told_by_the_kinds_that_need_one_size) {
  for (const std::string kind : {"mlp", "convnet", "resnet", "lstm"}) {
    Sequences program;
    program.info.input_shape = kind == "mlp" || kind == "convnet"
                                   ? std::vector<int64_t>{kAnySize, 6}
                                   : std::vector<int64_t>{6, kAnySize};
    if (kind == "convnet" || kind == "resnet") program.info.input_shape = {kAnySize, 40, 40};
    const int code = program.go("plan", {"--set", "model.kind=" + kind});
    EXPECT_EQ(code, 2) << kind << ": " << program.err;
    TANREN_EXPECT_CONTAINS(program.err, "[model] " + kind);
    TANREN_EXPECT_CONTAINS(program.err, "vary");
    program.expect_one_line();
  }
}

// Has an auxiliary head, used in training and not in predictions.
class AuxNet : public OwnNet {
 public:
  AuxNet() { aux = register_module("zz_aux", torch::nn::Linear(8, 7)); }
  torch::nn::Linear aux{nullptr};
};

TEST(OwnConvert, tells_the_outputs_of_the_model_and_not_those_of_a_head_beside_it) {
  OwnProgram program;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<AuxNet>();
    Task task = supervised(net, options, info);
    task.phases[0].forward = [net](const Batch& batch) {
      const at::Tensor hidden = at::relu(net->body(batch["inputs"]));
      return Terms{cross_entropy(net->head(hidden), batch["labels"]),
                   Term{"aux", net->aux(hidden).square().sum()}};
    };
    return task;
  };
  ASSERT_EQ(program.go("run"), 0) << program.err;
  const std::string folder = program.at("python").string();
  EXPECT_EQ(program.go({"own", "convert", program.run().string(), folder}), 0) << program.err;
  TANREN_EXPECT_CONTAINS(read_file(folder + "/architecture.json"), "\"outputs\": 3");
}

}  // namespace
}  // namespace tanren::testing
