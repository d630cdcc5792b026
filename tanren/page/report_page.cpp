#include "tanren/page/report_page.h"

namespace tanren {

namespace {

constexpr std::string_view kStyle = R"css(
body { font: 14px/1.45 "Helvetica Neue", Arial, sans-serif; color: #000; background: #fff;
       max-width: 900px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 22px; margin: 0 0 .3em; }
h2 { font-size: 16px; margin: 1.8em 0 .4em; border-bottom: 1px solid #000; }
.subject, .note { color: #333; }
.note { font-size: 12px; white-space: pre-line; margin: .4em 0; }
table { border-collapse: collapse; width: 100%; font-size: 12.5px; }
th { text-align: left; border-bottom: 1px solid #888; font-weight: 600; padding: 2px 10px 2px 0; }
td { padding: 1.5px 10px 1.5px 0; border-bottom: 1px solid #e4e4e4; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; display: block; margin: .6em 0; }
svg text { font: 11px "Helvetica Neue", Arial, sans-serif; fill: #000; }
#tip { position: fixed; display: none; background: #fff; border: 1px solid #000; padding: 3px 7px;
       font-size: 12px; white-space: nowrap; pointer-events: none; }
section { break-inside: auto; }
h2, thead { break-after: avoid; }
tr, svg, li { break-inside: avoid; }
@media print { body { margin: 0; max-width: none; } #tip { display: none !important; } }
)css";

// Shows the owner under the pointer, from the numbers of the plot. The page is readable without it.
constexpr std::string_view kScript = R"js(
(function () {
  var plot = document.getElementById('memory-plot'), tip = document.getElementById('tip');
  var holder = document.getElementById('memory-data');
  if (!plot || !holder) return;
  var data = JSON.parse(holder.textContent);
  function mib(bytes) { return (bytes / 1048576).toFixed(1) + ' MiB'; }
  plot.addEventListener('mousemove', function (event) {
    var point = plot.createSVGPoint();
    point.x = event.clientX; point.y = event.clientY;
    var at = point.matrixTransform(plot.getScreenCTM().inverse());
    var last = data.total.length - 1;
    var moment = Math.round((at.x - data.left) / data.width * last);
    var level = (data.bottom - at.y) / data.height * data.top;
    if (moment < 0 || moment > last || level < 0) { tip.style.display = 'none'; return; }
    var sum = 0, text = mib(data.total[moment]) + ' in all';
    for (var i = 0; i < data.owners.length; i++) {
      var bytes = data.owners[i].bytes[moment];
      sum += bytes;
      if (level <= sum && bytes > 0) {
        text = data.owners[i].name + ': ' + mib(bytes) + ' of ' + text;
        break;
      }
    }
    tip.textContent = text;
    tip.style.display = 'block';
    var x = event.clientX + 14, y = event.clientY + 14;  // on the pointer's other side at the edges
    if (x + tip.offsetWidth > window.innerWidth) x = event.clientX - 14 - tip.offsetWidth;
    if (y + tip.offsetHeight > window.innerHeight) y = event.clientY - 14 - tip.offsetHeight;
    tip.style.left = Math.max(x, 0) + 'px';
    tip.style.top = Math.max(y, 0) + 'px';
  });
  plot.addEventListener('mouseleave', function () { tip.style.display = 'none'; });
})();
)js";

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string page_head(std::string_view title) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width\">\n<title>" +
         escaped(title) + "</title>\n<style>" + std::string(kStyle) + "</style></head>\n<body>\n";
}

std::string json_element(std::string_view id, std::string_view json) {
  std::string html = "<script type=\"application/json\" id=\"" + escaped(id) + "\">";
  for (const char c : json) {
    if (c == '<') {
      html += "\\u003c";
    } else {
      html += c;
    }
  }
  return html + "</script>\n";
}

std::string page_end(std::string_view script) {
  std::string html = "<div id=\"tip\"></div>\n<script>" + std::string(kScript) + "</script>\n";
  if (!script.empty()) html += "<script>" + std::string(script) + "</script>\n";
  return html + "</body></html>\n";
}

}  // namespace tanren
