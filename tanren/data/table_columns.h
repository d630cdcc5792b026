// Decides which columns of a table are read, and how: by the keys of a data section, or as in
// training. Called by the kind csv.
#pragma once

#include "tanren/base/table_encoding.h"
#include "tanren/config/run_config.h"
#include "tanren/data/table_file.h"

#include <cstddef>
#include <string>
#include <vector>

namespace tanren {

// Whether the keys ask for more than the numbers of all columns (columns, categories, …), so that
// the encoding is kept with the model.
bool asks_for_encoding(const SourceOptions& options);
// Whether something about the chosen columns must first be measured on the training data.
bool needs_measures(const TableEncoding& table, const SourceOptions& options);

// The place of the label column. DataError if there is none, or two.
size_t label_place(const TableFile& file, const SourceOptions& options, const std::string& what);

// The columns that options.columns and options.ignore leave, in the order of the file, as numbers
// or categories. Nothing is measured yet. DataError if a name or pattern matches no column, or if
// no column is left. The error names the existing columns and the nearest one.
TableEncoding asked_columns(const TableFile& file, const SourceOptions& options,
                            const std::string& what, size_t label);

// The places of the encoding's columns in the file. DataError with both lists if a column is
// missing or occurs twice. `trained` names the data that the encoding comes from ("data.train").
std::vector<size_t> places_of(const TableEncoding& table, const TableFile& file,
                              const std::string& trained);

// "a, b, c": the first of them if they are many.
std::string columns_text(std::vector<std::string> names);

}  // namespace tanren
