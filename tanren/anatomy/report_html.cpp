#include "tanren/anatomy/memory_plot.h"
#include "tanren/anatomy/report_tables.h"
#include "tanren/base/text.h"
#include "tanren/page/report_page.h"
#include "tanren/page/units.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tanren {

namespace {

constexpr size_t kOperators = 40, kNodes = 20;

// Share of time and share of FLOPs: a pair of bars for each class.
std::string share_bars(const Anatomy& anatomy) {
  constexpr int kLeft = 190, kWidth = 560, kRow = 34, kBar = 11;
  const int height = kRow * static_cast<int>(kNumOperatorClasses) + 24;
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 820 {}\" role=\"img\" aria-label=\"share of time and of FLOPs by "
      "class\">\n",
      height);
  int y = 4;
  for (const ClassRow& row : anatomy.classes) {
    const auto bar = [&](int at, double share, const char* style) {
      const double width = std::max(share * kWidth, share > 0 ? 0.7 : 0.0);
      svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" {}/>", kLeft, at,
                         width, kBar, style);
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", kLeft + width + 5,
                         at + kBar - 1, percent_text(share));
    };
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + 16,
                       name(row.of));
    bar(y, row.share, "fill=\"#222\"");
    bar(y + kBar + 2, row.flops_share, "fill=\"#fff\" stroke=\"#222\"");
    y += kRow;
  }
  svg += fmt::format(
      "<rect x=\"{0}\" y=\"{1}\" width=\"11\" height=\"11\" fill=\"#222\"/><text x=\"{2}\" "
      "y=\"{3}\">share of time</text><rect x=\"{4}\" y=\"{1}\" width=\"11\" height=\"11\" "
      "fill=\"#fff\" stroke=\"#222\"/><text x=\"{5}\" y=\"{3}\">share of FLOPs</text>\n",
      kLeft, y, kLeft + 16, y + 10, kLeft + 130, kLeft + 146);
  return svg + "</svg>\n";
}

std::string advice_html(const Anatomy& anatomy) {
  if (anatomy.tried.empty()) return "";
  std::string html = "<section><h2>Advice, each measured by a run</h2>\n";
  const auto lines = advice_lines(anatomy);
  if (lines.empty()) {
    html += "<p>Nothing that was tried helps.</p>\n";
  } else {
    html += "<ol>\n";
    for (const auto& line : lines) html += "<li>" + escaped(line) + "</li>\n";
    html += "</ol>\n";
  }
  return html +
         "<p class=\"note\">Tried: " + escaped(fmt::format("{}", fmt::join(anatomy.tried, ", "))) +
         ".</p></section>\n";
}

}  // namespace

std::string anatomy_html(const Anatomy& anatomy) {
  std::string html = page_head("Anatomy of " + anatomy.subject.name);
  html += "<h1>Anatomy of " + escaped(anatomy.subject.name) + "</h1>\n<p class=\"subject\">";
  for (const auto& line : subject_lines(anatomy)) html += escaped(line) + "<br>\n";
  html += "</p>\n" + advice_html(anatomy) + html_of(step_table(anatomy));
  html += html_of(class_table(anatomy)) + share_bars(anatomy);
  html += html_of(stage_table(anatomy)) + html_of(memory_table(anatomy));
  html += "<section><h2>Memory over one step</h2>\n" + memory_plot(anatomy) + "</section>\n";
  html += html_of(prediction_table(anatomy)) + html_of(block_table(anatomy));
  html += html_of(cut_table(anatomy));
  html += html_of(operator_table(anatomy, kOperators)) + html_of(node_table(anatomy, kNodes));
  return html + page_end();
}

}  // namespace tanren
