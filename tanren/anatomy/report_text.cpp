#include "tanren/anatomy/report_tables.h"
#include "tanren/base/text.h"

#include <fmt/ranges.h>

namespace tanren {

namespace {

constexpr size_t kTextOperators = 20, kTextNodes = 10;

}  // namespace

std::string anatomy_text(const Anatomy& anatomy) {
  std::string text;
  for (const auto& line : subject_lines(anatomy)) text += line + "\n";
  for (const Table& table :
       {step_table(anatomy), class_table(anatomy), operator_table(anatomy, kTextOperators),
        node_table(anatomy, kTextNodes), block_table(anatomy), stage_table(anatomy),
        memory_table(anatomy), prediction_table(anatomy)}) {
    text += "\n" + text_of(table);
  }
  text += "\n" + text_of(cut_table(anatomy));
  if (anatomy.tried.empty()) return text;
  text += "\nADVICE, each measured by a run\n";
  for (const auto& line : advice_lines(anatomy)) text += "  " + line + "\n";
  if (anatomy.advice.empty()) text += "  nothing that was tried helps\n";
  return text + fmt::format("  tried: {}\n", fmt::join(anatomy.tried, ", "));
}

}  // namespace tanren
