// The keys of a data section about the columns of a table.
#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

#include <algorithm>
#include <set>

namespace tanren {

void add_table_fields(FieldList& add, SourceOptions& o) {
  add("columns", &o.columns,
      "csv: columns of features, by name or pattern (*, ?), in the order of the file; other "
      "columns are not read. []: all but the label, in data.eval those of data.train, by name.");
  add("ignore", &o.ignore, "csv: columns that are not read, by name or pattern. Not with columns.");
  add("categories", &o.categories,
      "csv: feature columns of texts, by name or pattern. Each text that the training rows have "
      "(sorted; at most 1000) becomes an input, which is 1 for this text, else 0. An unknown text "
      "gives 0 in all.");
  add("standardize", &o.standardize,
      "csv: subtract the mean from each column of numbers and divide it by the standard deviation, "
      "both of the training rows, in fp64; constant columns are divided by 1. Not with scale and "
      "offset.");
  add("missing", &o.missing,
      "csv: treatment of cells that are empty, NA, N/A, NaN, nan, NULL, null or ?: error, mean (of "
      "training's column), zero. In a category, mean and zero give 0 in all its inputs. A label "
      "must not be missing. Empty: error, in data.eval as in data.train.");
  add("delimiter", &o.delimiter, Identity::free,
      "csv, text_table (not .jsonl): separator of cells: , ; | : or tab. With tab nothing is "
      "quoted. Empty: tab in .tsv files, else the first of , ; tab | that gives the header the "
      "needed columns, or the most frequent one.");
  add("decimal", &o.decimal, Identity::free,
      "csv: decimal separator of numbers: . or , (3,14). Empty: a point, in data.eval as in "
      "data.train.");
}

namespace {

void check_class_names(Problems& p, const std::string& section, const SourceOptions& o) {
  const std::set<std::string> names(o.class_names.begin(), o.class_names.end());
  p.check(names.size() == o.class_names.size() && names.count("") == 0,
          section + "class_names has an empty name or one twice; give each class one name");
  p.check(o.class_names.empty() || o.label_type == "class",
          section + "class_names has no meaning for label_type \"value\"; drop it");
  const auto named = static_cast<int64_t>(names.size());
  p.check(named == 0 || o.classes == 0 || o.classes == named,
          fmt::format("{}classes is {}, class_names has {}; drop classes", section,
                      to_text(o.classes), to_text(named)));
}

void check_delimiter(Problems& p, const std::string& section, const SourceOptions& o) {
  const std::vector<std::string> known = {"", ",", ";", "|", ":", "tab", "\t"};
  p.check(std::find(known.begin(), known.end(), o.delimiter) != known.end(),
          section + "delimiter is \"" + o.delimiter + "\"; give one of , ; | : or tab");
  const bool is_json = o.path.ends_with(".jsonl") || o.path.ends_with(".ndjson");
  p.check(o.kind != "text_table" || !is_json || o.delimiter.empty(),
          section + "delimiter has no meaning for a file of JSON lines; drop it");
}

}  // namespace

void check_table(Problems& p, const std::string& section, const SourceOptions& o) {
  const auto unused = [&](const std::vector<std::string>& keys) {
    p.unused(section, keys, section + "kind", o.kind);
  };
  const bool is_csv = o.kind == "csv";
  if (!is_csv) unused({"columns", "ignore", "categories", "standardize", "missing", "decimal"});
  if (!is_csv && o.kind != "text_table") {
    unused({"delimiter", "class_names"});
    return;
  }
  check_class_names(p, section, o);
  check_delimiter(p, section, o);
  if (!is_csv) return;
  p.check(o.columns.empty() || o.ignore.empty(),
          section + "columns and ignore both choose columns; drop one");
  p.one_of(section + "missing", o.missing.empty() ? "error" : o.missing, {"error", "mean", "zero"});
  p.one_of(section + "decimal", o.decimal.empty() ? "." : o.decimal, {".", ","});
  p.check(!o.standardize || (o.scale == 1 && o.offset == 0),
          section +
              "standardize and scale or offset both change numbers; drop one (standardize takes "
              "off the mean, whatever the scale)");
}

void check_columns_pair(Problems& p, const DataOptions& o) {
  const SourceOptions &train = o.train, &eval = o.eval;
  if (eval.kind != "csv") return;
  if (train.kind != "csv") {
    const bool learns = !eval.categories.empty() || eval.standardize || eval.missing == "mean";
    p.check(!learns,
            "data.eval.categories, standardize and missing \"mean\" need what a data.train.kind "
            "\"csv\" has measured, and data.train.kind is \"" +
                train.kind + "\"; drop them");
    return;
  }
  const auto same = [&](const std::string& key, bool equal) {
    p.check(equal, "data.eval." + key + " differs from data.train." + key +
                       "; one model sees both: make them equal, or drop that of data.eval");
  };
  same("columns", eval.columns.empty() || eval.columns == train.columns);
  same("ignore", eval.ignore.empty() || eval.ignore == train.ignore);
  same("categories", eval.categories.empty() || eval.categories == train.categories);
  same("standardize", !eval.standardize || train.standardize);
  const std::string missing = train.missing.empty() ? "error" : train.missing;
  same("missing", eval.missing.empty() || eval.missing == missing);
  same("class_names", eval.class_names.empty() || eval.class_names == train.class_names);
}

}  // namespace tanren
