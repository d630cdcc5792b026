#include "tanren/config/problems.h"

#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

// {low, high}: 0 < low ≤ high ≤ most.
void check_range(Problems& p, const std::string& key, const std::vector<double>& range,
                 double most) {
  const bool fine = range.size() == 2 && range[0] > 0 && range[0] <= range[1] && range[1] <= most;
  p.check(fine, fmt::format("{} must be [smallest, largest], above 0 and at most {}", key,
                            to_text(most)));
}

// A number for each channel, or none.
void check_per_channel(Problems& p, const std::string& key, const std::vector<double>& values,
                       int64_t channels, bool positive) {
  p.check(values.empty() || static_cast<int64_t>(values.size()) == channels,
          fmt::format("{} has {} numbers for {} channels; give one for each", key, values.size(),
                      to_text(channels)));
  for (const double value : values) {
    if (positive) {
      p.positive(key, value);
    } else {
      p.check(std::isfinite(value), fmt::format("{} is {}; give a number", key, to_text(value)));
    }
  }
}

void check_geometry(Problems& p, const std::string& section, const SourceOptions& o) {
  const bool training = section == "data.train.";
  const auto unused = [&](const std::vector<std::string>& keys) {
    p.unused(section, keys, section + "crop", o.crop);
  };
  p.sizes(section + "size", o.size);
  p.check(o.size.size() == 1 || o.size.size() == 2,
          fmt::format("{}size has {} numbers; give [height, width] or one for a square", section,
                      o.size.size()));
  constexpr double kMostPixels = 1e9;
  const double pixels =
      o.size.empty() ? 0 : static_cast<double>(o.size.front()) * static_cast<double>(o.size.back());
  p.check(pixels <= kMostPixels,
          fmt::format("{}size is {} pixels an image, which is absurd; lower it", section,
                      to_text(pixels)));
  const int64_t longest = o.size.empty() ? 1 : *std::max_element(o.size.begin(), o.size.end());
  p.count(section + "resize", o.resize, 0);
  p.check(o.resize == 0 || o.resize >= longest,
          fmt::format("{}resize is {}, too small for a crop of {}; make it at least that, or 0",
                      section, to_text(o.resize), to_text(longest)));
  if (training) {
    p.one_of(section + "crop", o.crop, {"center", "none", "random", "shift"});
  } else {
    p.one_of(section + "crop", o.crop, {"center", "none"});
  }
  if (o.crop == "none" || o.crop == "random") unused({"resize"});
  if (o.crop != "random") unused({"crop_scale", "crop_ratio"});
  if (o.crop != "shift") unused({"pad"});
  check_range(p, section + "crop_scale", o.crop_scale, 1);
  check_range(p, section + "crop_ratio", o.crop_ratio, 1000);
  const int64_t shortest = o.size.empty() ? 1 : *std::min_element(o.size.begin(), o.size.end());
  p.check(o.pad >= 0 && o.pad < shortest,
          fmt::format("{}pad is {}; it must be 0 or more and smaller than the crop", section,
                      to_text(o.pad)));
}

void check_colours(Problems& p, const std::string& section, const SourceOptions& o) {
  p.check(o.color.empty() || o.color.size() == 4,
          fmt::format("{}color has {} numbers; give [brightness, contrast, saturation, hue]",
                      section, o.color.size()));
  for (const double amount : o.color) p.not_negative(section + "color", amount);
  if (o.color.size() == 4) {
    p.check(o.color[3] <= 0.5, fmt::format("{}color has hue {}; at most 0.5, which is any hue",
                                           section, to_text(o.color[3])));
    p.check(o.channels != 1 || (o.color[2] == 0 && o.color[3] == 0),
            section + "color changes saturation or hue, which grey images lack; set both to 0");
  }
  check_per_channel(p, section + "mean", o.mean, o.channels, false);
  check_per_channel(p, section + "std", o.std, o.channels, true);
}

void check_pairs(Problems& p, const std::string& section, const SourceOptions& o) {
  // Both pictures lie in [-1, 1], and a colour change in only one of them would break the pair.
  p.unused(section, {"color", "mean", "std"}, section + "kind", o.kind);
  const Keys filters = {"bilinear", "bicubic", "nearest"};
  p.one_of(section + "filter", o.filter, filters);
  if (!o.target_filter.empty()) p.one_of(section + "target_filter", o.target_filter, filters);
  p.check(o.target_channels == 0 || o.target_channels == 1 || o.target_channels == 3,
          fmt::format("{}target_channels is {}; it must be 3 (RGB), 1 (grey) or 0, as channels",
                      section, to_text(o.target_channels)));
}

}  // namespace

void check_images(Problems& p, const std::string& section, const SourceOptions& o) {
  const bool is_pairs = o.kind == "pairs";
  const auto unused = [&](const Keys& keys) { p.unused(section, keys, section + "kind", o.kind); };
  if (!is_pairs) unused({"side_by_side", "swap", "filter", "target_filter", "target_channels"});
  if (o.kind != "images" && !is_pairs) {
    unused({"size", "resize", "crop", "crop_scale", "crop_ratio", "pad", "flip", "color",
            "channels", "mean", "std", "max_pixels", "broken"});
    return;
  }
  const std::string holds = !is_pairs        ? "class folders"
                            : o.side_by_side ? "pictures"
                                             : "inputs/ and targets/";
  p.check(!o.path.empty(), section + "path is missing; name the folder of " + holds);
  check_geometry(p, section, o);
  p.within(section + "flip", o.flip, 0, 1, true);
  p.check(o.channels == 1 || o.channels == 3,
          fmt::format("{}channels is {}; it must be 3 (RGB) or 1 (grey)", section,
                      to_text(o.channels)));
  if (is_pairs) {
    check_pairs(p, section, o);
  } else {
    check_colours(p, section, o);
  }
  if (section == "data.eval.") {
    p.check(o.flip == 0 && o.color.empty(),
            section + (is_pairs ? "flip is" : "flip and color are") +
                " for training; evaluation changes no image: drop " + (is_pairs ? "it" : "them"));
  }
  p.count(section + "max_pixels", o.max_pixels, 1);
  p.one_of(section + "broken", o.broken, {"error", "skip"});
}

}  // namespace tanren
