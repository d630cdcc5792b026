#include "tanren/metrics/evaluation_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/log.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/metrics/json_line.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxTextClasses = 50;

// The name of class `index`, or its number.
std::string label_of(size_t index, const EvaluationReport& report, const ClassNames& names) {
  return names.size() == report.classes.size() ? names[index] : to_text(index);
}

// Makes a table of rows of cells; the first row is the head. Columns are as wide as needed, texts
// right-aligned.
std::string markdown(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int64_t> widths(rows.front().size(), 1);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  // All columns of numbers get the same width.
  const int64_t widest = *std::max_element(widths.begin() + 1, widths.end());
  std::fill(widths.begin() + 1, widths.end(), widest);
  std::string text;
  for (size_t row = 0; row < rows.size(); ++row) {
    text += "|";
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = rows[row][i];
      text += " " + std::string(static_cast<size_t>(widths[i] - display_width(cell)), ' ') + cell +
              " |";
    }
    text += "\n";
    if (row > 0) continue;
    text += "|";
    for (const int64_t width : widths)
      text += std::string(static_cast<size_t>(width) + 1, '-') + ":|";
    text += "\n";
  }
  return text;
}

std::string markdown_cell(const std::string& name) {
  std::string cell;
  for (const char c : one_line(name)) cell += c == '|' ? "\\|" : std::string(1, c);
  return cell;
}

std::string score_text(double score) {
  return std::isfinite(score) ? fmt::format("{:.4g}", score) : "-";
}

std::string class_json(size_t index, const ClassReport& one, const std::string& name) {
  std::string out = "{";
  append_member(out, "class", static_cast<int64_t>(index));
  if (!name.empty()) append_member(out, "name", std::string_view(name));
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
  for (size_t i = 0; i < columns; ++i) out += (i > 0 ? "," : "") + to_text(row[i]);
  return out + "]";
}

class EvaluationFileSink final : public Sink {
 public:
  EvaluationFileSink(fs::path file, int64_t step, ClassNames names)
      : file_(std::move(file)), names_(std::move(names)) {
    std::error_code error;
    if (!fs::is_regular_file(file_, error)) return;
    const auto json = parse_json(read_file(file_));
    const auto found = json.find("step");  // end() if it is no object
    const bool is_earlier =
        found != json.end() && found->is_number_integer() && found->get<int64_t>() <= step;
    if (!is_earlier) fs::remove(file_, error);
  }

  void step(const StepReport&) override {}

  void evaluation(const EvaluationReport& report) override {
    if (report.classes.empty()) return;
    try {
      write_file(file_, evaluation_json(report, names_));
    } catch (const Error& error) {
      if (!told_) log(std::string(error.what()) + "; the run goes on");
      told_ = true;
    }
  }

 private:
  fs::path file_;
  ClassNames names_;
  bool told_ = false;
};

}  // namespace

std::string evaluation_json(const EvaluationReport& report, const ClassNames& names) {
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
    const bool is_named = names.size() == report.classes.size();
    out += class_json(i, report.classes[i], is_named ? names[i] : "") +
           (i + 1 < report.classes.size() ? ",\n" : "]");
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

std::string confusion_markdown(const EvaluationReport& report, const ClassNames& names) {
  const size_t size = report.classes.size();
  if (report.confusion_matrix.empty()) return "";
  if (size > kMaxTextClasses) {
    return fmt::format("The confusion matrix of {} classes is in evaluation.json.\n", size);
  }
  std::vector<std::vector<std::string>> rows{{"target \\ prediction"}};
  for (size_t i = 0; i < size; ++i) {
    const std::string label = markdown_cell(label_of(i, report, names));
    rows.front().push_back(label);
    std::vector<std::string> row{label};
    for (size_t j = 0; j < size; ++j) {
      row.push_back(to_text(report.confusion_matrix[i * size + j]));
    }
    rows.push_back(std::move(row));
  }
  return markdown(rows);
}

std::string classes_markdown(const EvaluationReport& report, const ClassNames& names) {
  const size_t size = report.classes.size();
  if (size == 0) return "";
  if (size > kMaxTextClasses) {
    return fmt::format("The scores of {} classes are in evaluation.json.\n", size);
  }
  const bool has_auroc = report.classes.front().auroc.has_value();
  std::vector<std::vector<std::string>> rows{
      {"class", "targets", "predictions", "precision", "recall", "f1"}};
  if (has_auroc) rows.front().emplace_back("auroc");
  for (size_t i = 0; i < size; ++i) {
    const ClassReport& one = report.classes[i];
    rows.push_back({markdown_cell(label_of(i, report, names)), to_text(one.targets),
                    to_text(one.predictions), score_text(one.precision), score_text(one.recall),
                    score_text(one.f1)});
    if (has_auroc) rows.back().push_back(score_text(one.auroc.value_or(NAN)));
  }
  return markdown(rows);
}

std::unique_ptr<Sink> make_evaluation_file_sink(const fs::path& file, int64_t step,
                                                const ClassNames& names) {
  return std::make_unique<EvaluationFileSink>(file, step, names);
}

}  // namespace tanren
