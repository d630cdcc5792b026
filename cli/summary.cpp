#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/forecast/model_table.h"
#include "tanren/run/start_files.h"
#include "cli/verbs.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iostream>

namespace tanren::cli {

namespace {

// A count in the table. Zero is "-", because most counts are zero.
std::string cell_text(int64_t count) { return count == 0 ? "-" : count_text(count); }

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "-" : fmt::format("[{}]", fmt::join(shape, ", "));
}

using Cells = std::array<std::string, 7>;

Cells cells_of(const LayerRow& row) {
  return {row.name.empty() ? "(model)" : row.name,
          row.type,
          shape_text(row.output_shape),
          cell_text(row.parameters),
          cell_text(row.trainable),
          cell_text(row.multiply_adds),
          cell_text(row.activation_bytes)};
}

std::string table_text(const std::vector<Cells>& lines) {
  std::array<size_t, 7> widths{};
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string text;
  for (const Cells& cells : lines) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      line += i < 3 ? fmt::format("{:<{}}  ", cells[i], widths[i])
                    : fmt::format("{:>{}}  ", cells[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// The sizes that torchsummary reports, in its units (1 MB = 2^20 bytes): activations count twice,
// for their gradients.
struct Megabytes {
  explicit Megabytes(const LayerTable& table)
      : input(of(table.input_bytes)),
        passes(2 * of(table.total().activation_bytes)),
        parameters(of(table.parameter_bytes)) {}
  static double of(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
  double total() const { return input + passes + parameters; }
  double input, passes, parameters;
};

std::string footer_text(const LayerTable& table) {
  const LayerRow total = table.total();
  const Megabytes size(table);
  return fmt::format(
      "Total params: {}\nTrainable params: {}\nNon-trainable params: {}\nTotal mult-adds: {}\n"
      "Input size (MB): {:.2f}\nForward/backward pass size (MB): {:.2f}\n"
      "Params size (MB): {:.2f}\nEstimated Total Size (MB): {:.2f}\n"
      "For a batch of {} with samples of shape {}, in fp32; no loss, no optimizer state.\n",
      count_text(total.parameters), count_text(total.trainable),
      count_text(total.parameters - total.trainable), count_text(total.multiply_adds), size.input,
      size.passes, size.parameters, size.total(), table.batch,
      shape_text(table.input_shape.empty() ? std::vector<int64_t>()
                                           : std::vector<int64_t>(table.input_shape.begin() + 1,
                                                                  table.input_shape.end())));
}

nlohmann::ordered_json row_json(const LayerRow& row) {
  return {{"name", row.name},
          {"type", row.type},
          {"output_shape", row.output_shape},
          {"parameters", row.parameters},
          {"trainable", row.trainable},
          {"multiply_adds", row.multiply_adds},
          {"activation_bytes", row.activation_bytes},
          {"uses", row.uses}};
}

std::string table_json(const LayerTable& table) {
  const LayerRow total = table.total();
  nlohmann::ordered_json json{{"batch", table.batch}, {"input_shape", table.input_shape}};
  json["modules"] = nlohmann::ordered_json::array();
  for (const LayerRow& row : table.rows) json["modules"].push_back(row_json(row));
  json["total"] = {
      {"parameters", total.parameters},       {"trainable", total.trainable},
      {"multiply_adds", total.multiply_adds}, {"activation_bytes", total.activation_bytes},
      {"input_bytes", table.input_bytes},     {"parameter_bytes", table.parameter_bytes},
      {"buffer_bytes", table.buffer_bytes},   {"loss_bytes", table.loss_bytes}};
  if (!table.mismatch.empty()) json["mismatch"] = table.mismatch;
  return json_text(json);
}

}  // namespace

int summary(const Arguments& arguments, const Registry& registry) {
  const Named named = read_named(arguments, registry);
  RunConfig config = named.config;
  config.model = take_start(named.began, config).model;
  const LayerTable table = model_table(config, registry);
  if (arguments.json) {
    std::cout << table_json(table) << "\n";
  } else if (!arguments.quiet) {
    std::vector<Cells> lines{{"module", "type", "output shape", "parameters", "trainable",
                              "mult-adds", "activation bytes"}};
    for (const LayerRow& row : table.rows) {
      // After a mismatch, only the rows that ran before it.
      if (table.mismatch.empty() || !row.output_shape.empty()) lines.push_back(cells_of(row));
    }
    std::cout << table_text(lines);
    if (table.mismatch.empty()) std::cout << "\n" << footer_text(table);
  }
  if (table.mismatch.empty()) return 0;
  std::cout.flush();
  std::cerr << table.mismatch << "\n";
  return 2;
}

}  // namespace tanren::cli
