// Which columns of a table are read, and how: from the keys of a data section, or as training did.
// Called by the kind csv.
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
// Whether something must be measured on the training data first, of columns that are asked for.
bool needs_measures(const TableEncoding& table, const SourceOptions& options);

// The place of the label column. DataError if there is none, or two.
size_t label_place(const TableFile& file, const SourceOptions& options, const std::string& what);

// The columns that options.columns and options.ignore leave, in the order of the file, as numbers
// or categories that nothing was measured of. DataError naming the columns there are and the
// nearest one if a name or pattern fits none, or if no column is left.
TableEncoding asked_columns(const TableFile& file, const SourceOptions& options,
                            const std::string& what, size_t label);

// The places of the encoding's columns in the file. DataError with both lists if one is missing or
// there twice. `trained`: who has them ("data.train").
std::vector<size_t> places_of(const TableEncoding& table, const TableFile& file,
                              const std::string& trained);

// "a, b, c": the first of them if they are many.
std::string columns_text(std::vector<std::string> names);

}  // namespace tanren
