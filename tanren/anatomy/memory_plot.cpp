#include "tanren/anatomy/memory_plot.h"

#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/page/plot_axis.h"
#include "tanren/page/report_page.h"
#include "tanren/page/units.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace tanren {

namespace {

// The drawing's units; the page scales it.
constexpr double kLeft = 62, kTop = 22, kWidth = 820, kHeight = 330, kBottom = kTop + kHeight;
constexpr double kRoom = 1.06;  // above the peak

// A pattern for each kind, distinct on paper too: the direction of the lines, and their background.
struct Look {
  MemoryKind kind;
  const char* ground;
  const char* lines;  // of a tile of 6 × 6
};
constexpr Look kLooks[] = {
    {MemoryKind::workspaces, "#fff", "M0 0H6"},
    {MemoryKind::weights, "#3a3a3a", ""},
    {MemoryKind::gradients, "#8a8a8a", ""},
    {MemoryKind::optimizer, "#c4c4c4", ""},
    {MemoryKind::averages, "#e2e2e2", "M0 3H6"},
    {MemoryKind::other, "#fff", "M0 0H6M0 3H6"},
    {MemoryKind::key_values, "#e2e2e2", "M0 0V6"},
    {MemoryKind::casts, "#c4c4c4", "M0 0H6"},
    {MemoryKind::batches, "#fff", "M0 0V6M3 0V6"},
    {MemoryKind::activations, "#fff", "M0 6L6 0"},
    {MemoryKind::temporaries, "#f4f4f4", "M0 0L6 6M0 6L6 0"},
};

double x_of(size_t moment, size_t moments) {
  return kLeft + kWidth * static_cast<double>(moment) /
                     static_cast<double>(std::max<size_t>(moments, 2) - 1);
}

double y_of(double bytes, double top) { return kBottom - kHeight * bytes / top; }

std::string patterns() {
  std::string svg = "<defs>";
  for (const Look& look : kLooks) {
    svg += fmt::format(
        "<pattern id=\"kind-{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect "
        "width=\"6\" height=\"6\" fill=\"{}\"/><path d=\"{}\" stroke=\"#555\" "
        "stroke-width=\".7\"/></pattern>",
        name(look.kind), look.ground, look.lines);
  }
  return svg + "</defs>\n";
}

// About five lines.
std::string grid(double top) {
  const double mebibytes = top / (1 << 20);
  const double step = tick_step(mebibytes);
  std::string svg;
  for (double value = 0; value <= mebibytes; value += step) {
    const double y = y_of(value * (1 << 20), top);
    svg += fmt::format(
        "<path d=\"M{} {:.1f}H{}\" stroke=\"#ccc\" stroke-width=\".6\"/><text x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        kLeft, y, kLeft + kWidth, kLeft - 6, y + 4, value);
  }
  return svg + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">MiB</text>\n", kLeft - 6,
                           kTop - 8);
}

// Each owner's area reaches down to the axis; the areas of owners below it are drawn over it.
std::string areas(const MemoryTimeline& memory, double top) {
  const size_t moments = memory.total.size();
  std::vector<int64_t> sums = memory.total;
  std::string svg;
  for (size_t next = memory.owners.size(); next-- > 0;) {
    const auto& owner = memory.owners[next];
    std::string path = fmt::format("M{:.1f} {:.1f}", kLeft, kBottom);
    for (size_t i = 0; i < moments; ++i) {
      path +=
          fmt::format("L{:.1f} {:.1f}", x_of(i, moments), y_of(static_cast<double>(sums[i]), top));
      sums[i] -= owner.bytes[i];
    }
    svg += fmt::format(
        "<path d=\"{}L{:.1f} {:.1f}Z\" fill=\"url(#kind-{})\" stroke=\"#222\" "
        "stroke-width=\".45\"/>\n",
        path, kLeft + kWidth, kBottom, name(owner.kind));
  }
  return svg;
}

// Lines where passes begin; named if there is room.
std::string pass_lines(const MemoryTimeline& memory) {
  constexpr double kNameWidth = 52;
  const size_t moments = memory.total.size();
  std::string svg;
  for (size_t i = 0; i < memory.passes.size(); ++i) {
    const double x = x_of(memory.passes[i].event, moments);
    const double next =
        i + 1 < memory.passes.size() ? x_of(memory.passes[i + 1].event, moments) : kLeft + kWidth;
    if (next <= x) continue;
    svg += fmt::format(
        "<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#000\" stroke-width=\".8\" "
        "stroke-dasharray=\"3 3\"/>",
        x, kTop, kBottom);
    if (next - x >= kNameWidth) {
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", x + 3, kTop - 8,
                         name(memory.passes[i].pass));
    }
  }
  return svg;
}

std::string level(int64_t bytes, double top, const std::string& text, bool above) {
  const double y = y_of(static_cast<double>(bytes), top);
  return fmt::format(
      "<path d=\"M{0} {1:.1f}H{2}\" stroke=\"#000\" stroke-width=\"1\" stroke-dasharray=\"{3}\"/>"
      "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\" stroke=\"#fff\" stroke-width=\"3\" "
      "paint-order=\"stroke\">{6}</text>\n",
      kLeft, y, kLeft + kWidth, above ? "none" : "6 3", kLeft + kWidth - 4, above ? y - 4 : y + 13,
      escaped(text));
}

// The legend: the kinds of memory that occur, in at most two lines.
std::string legend(const MemoryTimeline& memory) {
  constexpr double kSwatch = 23, kLetter = 6, kGap = 20, kLine = 18;
  std::set<MemoryKind> present;
  for (const MemoryOwner& owner : memory.owners) present.insert(owner.kind);
  std::string svg;
  double x = kLeft, y = kBottom + 12;
  for (const Look& look : kLooks) {
    if (present.count(look.kind) == 0) continue;
    const double width = kSwatch + kLetter * static_cast<double>(name(look.kind).size());
    if (x + width > kLeft + kWidth) {
      x = kLeft;
      y += kLine;
    }
    svg += fmt::format(
        "<rect x=\"{0}\" y=\"{1}\" width=\"18\" height=\"12\" fill=\"url(#kind-{2})\" "
        "stroke=\"#222\" stroke-width=\".6\"/><text x=\"{3}\" y=\"{4}\">{2}</text>\n",
        x, y, name(look.kind), x + kSwatch, y + 10);
    x += width + kGap;
  }
  return svg;
}

// For the script: the numbers, and their place in the drawing.
std::string data_of(const MemoryTimeline& memory, double top) {
  nlohmann::json owners = nlohmann::json::array();
  for (const MemoryOwner& owner : memory.owners) {
    std::string who(name(owner.kind));
    if (!owner.block.empty()) who += " of " + owner.block;
    owners.push_back({{"name", who}, {"bytes", owner.bytes}});
  }
  const nlohmann::json data{{"left", kLeft},     {"width", kWidth}, {"bottom", kBottom},
                            {"height", kHeight}, {"top", top},      {"total", memory.total},
                            {"owners", owners}};
  return json_element("memory-data", json_text(data));
}

}  // namespace

std::string memory_plot(const Anatomy& anatomy) {
  const MemoryTimeline& memory = anatomy.memory;
  if (memory.total.empty() || memory.peak_bytes <= 0) return "";
  int64_t highest = memory.peak_bytes;
  if (anatomy.predicted) highest = std::max(highest, anatomy.predicted->peak);
  const double top = static_cast<double>(highest) * kRoom;
  std::string svg = fmt::format(
      "<svg id=\"memory-plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"bytes held over one "
      "step, stacked by owner\">\n",
      kLeft + kWidth + 10, kBottom + 48);
  svg += patterns() + grid(top) + areas(memory, top) + pass_lines(memory);
  svg += level(memory.peak_bytes, top, "peak " + mebibytes_text(memory.peak_bytes), true);
  if (anatomy.predicted) {
    svg += level(anatomy.predicted->peak, top,
                 "predicted " + mebibytes_text(anatomy.predicted->peak), false);
  }
  svg += legend(memory) + "</svg>\n";
  return svg +
         "<p class=\"note\">From left to right: allocations in their order, not time. Lines within "
         "a kind part the blocks; the pointer names the owner.</p>\n" +
         data_of(memory, top);
}

}  // namespace tanren
