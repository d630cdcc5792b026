#include "tanren/metrics/evaluation_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/metrics/json_line.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxTextClasses = 50;

std::string class_json(size_t index, const ClassReport& one) {
  std::string out = "{";
  append_member(out, "class", static_cast<int64_t>(index));
  append_member(out, "targets", one.targets);
  append_member(out, "predictions", one.predictions);
  append_member(out, "precision", one.precision);
  append_member(out, "recall", one.recall);
  append_member(out, "f1", one.f1);
  if (one.auroc) append_member(out, "auroc", *one.auroc);
  return out + "}";
}

std::string row_json(const int64_t* row, size_t columns) {
  std::string out = "[";
  for (size_t i = 0; i < columns; ++i) out += (i > 0 ? "," : "") + std::to_string(row[i]);
  return out + "]";
}

class EvaluationFileSink final : public Sink {
 public:
  EvaluationFileSink(fs::path file, int64_t step) : file_(std::move(file)) {
    std::error_code error;
    if (!fs::is_regular_file(file_, error)) return;
    const auto json = nlohmann::json::parse(read_file(file_), nullptr, false);
    const bool later = json.is_discarded() || !json.is_object() || json.value("step", -1) > step;
    if (later) fs::remove(file_, error);
  }

  void step(const StepReport&) override {}

  void evaluation(const EvaluationReport& report) override {
    if (report.classes.empty()) return;
    try {
      write_file(file_, evaluation_json(report));
    } catch (const Error& error) {
      if (!told_) log(std::string(error.what()) + "; the run goes on");
      told_ = true;
    }
  }

 private:
  fs::path file_;
  bool told_ = false;
};

}  // namespace

std::string evaluation_json(const EvaluationReport& report) {
  std::string head = "{";
  append_member(head, "step", report.step);
  append_member(head, "samples", report.samples);
  if (report.tokens > 0) append_member(head, "tokens", report.tokens);
  append_key(head, "values");
  head += '{';
  for (const auto& [name, value] : report.values) append_member(head, name, value);
  head += '}';
  if (report.auroc_error) append_member(head, "auroc_error", *report.auroc_error);
  std::string out = head + ",\n\"classes\":[\n";
  for (size_t i = 0; i < report.classes.size(); ++i) {
    out += class_json(i, report.classes[i]) + (i + 1 < report.classes.size() ? ",\n" : "]");
  }
  if (report.classes.empty()) out += ']';
  if (!report.confusion_matrix.empty()) {
    const size_t size = report.classes.size();
    out += ",\n\"confusion_matrix\":[\n";
    for (size_t i = 0; i < size; ++i) {
      out += row_json(&report.confusion_matrix[i * size], size) + (i + 1 < size ? ",\n" : "]");
    }
  }
  return out + "}\n";
}

std::string confusion_markdown(const EvaluationReport& report) {
  const size_t size = report.classes.size();
  if (report.confusion_matrix.empty()) return "";
  if (size > kMaxTextClasses) {
    return "The confusion matrix of " + std::to_string(size) + " classes is in evaluation.json.\n";
  }
  const auto largest =
      *std::max_element(report.confusion_matrix.begin(), report.confusion_matrix.end());
  const size_t width = std::to_string(std::max(largest, static_cast<int64_t>(size) - 1)).size();
  const auto cell = [&](int64_t number) {
    const auto digits = std::to_string(number);
    return " " + std::string(width - digits.size(), ' ') + digits + " |";
  };
  constexpr std::string_view kCorner = "target \\ prediction";
  std::string head = "| " + std::string(kCorner) + " |";
  std::string rule = "|" + std::string(kCorner.size() + 1, '-') + ":|";
  for (size_t i = 0; i < size; ++i) {
    head += cell(static_cast<int64_t>(i));
    rule += std::string(width + 1, '-') + ":|";
  }
  std::string text = head + "\n" + rule + "\n";
  for (size_t i = 0; i < size; ++i) {
    const auto label = std::to_string(i);
    text += "| " + std::string(kCorner.size() - label.size(), ' ') + label + " |";
    for (size_t j = 0; j < size; ++j) text += cell(report.confusion_matrix[i * size + j]);
    text += "\n";
  }
  return text;
}

std::unique_ptr<Sink> make_evaluation_file_sink(const fs::path& file, int64_t step) {
  return std::make_unique<EvaluationFileSink>(file, step);
}

}  // namespace tanren
