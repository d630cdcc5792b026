#include "tanren/data/table_columns.h"

#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_map>

namespace tanren {

namespace {

// The patterns of one key over the columns of a file.
class ColumnPatterns {
 public:
  ColumnPatterns(const std::vector<std::string>& patterns, std::string key)
      : patterns_(patterns), key_(std::move(key)) {}

  bool has(const std::string& column) const { return matches_any(patterns_, column); }

  // DataError if a pattern matches none of the columns `known`. `why`: the reason why other columns
  // of the file are not among them.
  void check(const TableFile& file, const std::vector<std::string>& known, const std::string& label,
             const std::string& why) const {
    for (const std::string& pattern : patterns_) {
      const bool fits = std::any_of(known.begin(), known.end(), [&](const std::string& column) {
        return matches(pattern, column);
      });
      if (fits) continue;
      if (pattern == label) {
        file.fail(1, key_ + " names \"" + pattern + "\", which is the label column; drop it there");
      }
      const auto& all = file.columns();
      if (!why.empty() && std::find(all.begin(), all.end(), pattern) != all.end()) {
        file.fail(1, key_ + " names \"" + pattern + "\", which " + why + "; drop it there");
      }
      const std::string near = nearest(pattern, known);
      file.fail(1, "there is no column \"" + pattern + "\", which " + key_ +
                       " names; the columns are " + columns_text(known) +
                       (near.empty() ? "" : "; nearest: " + near));
    }
  }

 private:
  const std::vector<std::string>& patterns_;
  std::string key_;
};

}  // namespace

std::string columns_text(std::vector<std::string> names) {
  constexpr size_t kShownColumns = 12;
  const size_t all = names.size();
  for (auto& name : names) name = one_line(name);
  if (all > kShownColumns) {
    names.resize(kShownColumns);
    names.push_back(fmt::format("… ({} in all)", all));
  }
  return join(names);
}

bool asks_for_encoding(const SourceOptions& options) {
  return !options.columns.empty() || !options.ignore.empty() || !options.categories.empty() ||
         options.standardize || (!options.missing.empty() && options.missing != "error") ||
         (!options.decimal.empty() && options.decimal != ".");
}

bool needs_measures(const TableEncoding& table, const SourceOptions& options) {
  const bool has_category =
      std::any_of(table.columns.begin(), table.columns.end(),
                  [](const TableColumn& column) { return column.is_category; });
  return table.standardizes || options.missing == "mean" || has_category;
}

size_t label_place(const TableFile& file, const SourceOptions& options, const std::string& what) {
  const auto& columns = file.columns();
  const auto found = std::find(columns.begin(), columns.end(), options.label);
  if (found == columns.end()) {
    std::vector<std::string> shown(
        columns.begin(), columns.begin() + std::min<std::ptrdiff_t>(8, std::ssize(columns)));
    for (std::string& column : shown) column = one_line(column);
    if (columns.size() > shown.size()) shown.emplace_back("…");
    double number = 0;
    const auto& first = columns.front();
    const auto parsed = std::from_chars(first.data(), first.data() + first.size(), number);
    const bool headless = parsed.ec == std::errc() && parsed.ptr == first.data() + first.size();
    file.fail(
        1, "there is no column \"" + one_line(options.label) + "\"; the columns are " +
               join(shown) +
               (headless              ? "; is there a header line that names the columns?"
                : columns.size() == 1 ? "; set " + what + ".delimiter to what separates the cells"
                                      : "; set " + what + ".label to one of them"));
  }
  if (std::find(found + 1, columns.end(), options.label) != columns.end()) {
    file.fail(1, "two columns are called \"" + one_line(options.label) + "\"; rename one");
  }
  if (columns.size() < 2) file.fail(1, "there is no feature column beside the label; add some");
  return static_cast<size_t>(found - columns.begin());
}

TableEncoding asked_columns(const TableFile& file, const SourceOptions& options,
                            const std::string& what, size_t label) {
  std::vector<std::string> features = file.columns();
  features.erase(features.begin() + static_cast<std::ptrdiff_t>(label));
  const ColumnPatterns taken(options.columns, what + ".columns");
  const ColumnPatterns left_out(options.ignore, what + ".ignore");
  const ColumnPatterns categories(options.categories, what + ".categories");
  taken.check(file, features, options.label, "");
  left_out.check(file, features, options.label, "");
  if (!options.columns.empty()) {
    std::erase_if(features, [&](const std::string& name) { return !taken.has(name); });
  }
  std::erase_if(features, [&](const std::string& name) { return left_out.has(name); });
  if (features.empty()) file.fail(1, what + ".ignore leaves no column beside the label; drop some");
  categories.check(
      file, features, options.label,
      options.columns.empty() ? what + ".ignore leaves out" : what + ".columns leaves out");
  TableEncoding table;
  for (const std::string& name : features) {
    table.columns.push_back({.name = name, .is_category = categories.has(name), .values = {}});
  }
  table.standardizes = options.standardize;
  table.fills = !options.missing.empty() && options.missing != "error";
  if (!options.decimal.empty()) table.decimal = options.decimal;
  return table;
}

std::vector<size_t> places_of(const TableEncoding& table, const TableFile& file,
                              const std::string& trained) {
  const auto& columns = file.columns();
  std::vector<std::string> names;
  for (const TableColumn& column : table.columns) names.push_back(column.name);
  constexpr size_t kTwice = std::string::npos;
  std::unordered_map<std::string_view, size_t> place_of;
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto [known, is_new] = place_of.emplace(columns[i], i);
    if (!is_new) known->second = kTwice;
  }
  std::vector<size_t> places;
  for (const std::string& name : names) {
    const auto found = place_of.find(name);
    if (found == place_of.end()) {
      file.fail(1, "there is no column \"" + one_line(name) + "\"; " + trained + " was read by " +
                       columns_text(names) + ", and this file has " + columns_text(columns) +
                       "; rename its columns");
    }
    if (found->second == kTwice) {
      file.fail(1, "two columns are called \"" + one_line(name) + "\"; rename one");
    }
    places.push_back(found->second);
  }
  return places;
}

}  // namespace tanren
