#include "tanren/base/one_line.h"
#include "tanren/page/report_page.h"
#include "tanren/post_training/report_plot.h"
#include "tanren/post_training/report_tables.h"

namespace tanren {

std::string quantize_html_report(const QuantizeReport& report) {
  const std::string title = "8-bit weights of " + one_line(report.model);
  std::string html = page_head(title) + "<h1>" + escaped(title) + "</h1>\n<p class=\"subject\">";
  for (const auto& line : report_lines(report)) html += escaped(line) + "<br>\n";
  html += "</p>\n";
  if (!report.remarks.empty()) {
    html += "<ul>\n";
    for (const auto& remark : report.remarks) {
      html += "<li>" + escaped(one_line(remark)) + "</li>\n";
    }
    html += "</ul>\n";
  }
  const std::string plot = pareto_plot(report);
  if (!plot.empty()) html += "<section><h2>Cost and metric</h2>\n" + plot + "</section>\n";
  return html + html_of(scheme_table(report)) + html_of(time_table(report)) +
         html_of(layer_table(report)) + page_end();
}

}  // namespace tanren
