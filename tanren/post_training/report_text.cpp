#include "tanren/post_training/report_tables.h"

namespace tanren {

namespace {

constexpr size_t kTextLayers = 30;

}  // namespace

std::string quantize_text_report(const QuantizeReport& report) {
  std::string text;
  for (const auto& line : report_lines(report)) text += line + "\n";
  for (const Table& table :
       {scheme_table(report), time_table(report), worst_layer_table(report, kTextLayers)}) {
    text += "\n" + text_of(table);
  }
  return report.remarks.empty() ? text : text + "\n" + text_of(remark_table(report));
}

}  // namespace tanren
