// The files of a dataset of pairs. Invariants: pairs are sorted by the bytes of their names. Every
// listed file is a complete JPEG or PNG, not CMYK. Both pictures of a pair have the same size as
// shown, i.e. after their EXIF turn. Called when a dataset is opened. The checks of one file also
// run before each decoding.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/data_part.h"
#include "tanren/data/image/header.h"

#include <string>
#include <vector>

namespace tanren {

struct PicturePair {
  std::string name;        // "a/1": below inputs/, without extension
  DataFile input, target;  // "inputs/a/1.jpg", below options.path; side by side: the same file
};

// Lists options.path and checks each file. Folders are searched recursively. With options.swap, the
// files of targets/ are the inputs. DataError for a path without the expected folders, for pictures
// without a partner, for pairs whose sizes differ, for side-by-side files of odd width, and for
// broken files. If options.broken is "skip", pairs with a broken file are dropped instead, with one
// log line.
std::vector<PicturePair> list_pairs(const SourceOptions& options, const std::string& what);

// BrokenImage for a CMYK JPEG, because its colours depend on its inks.
void check_pair_colours(const ImageHeader& header);
// BrokenImage if the pictures of a pair have different sizes as shown.
void check_same_size(const ImageHeader& input, const ImageHeader& target);
// BrokenImage if the width, as shown, is odd.
void check_halves(const ImageHeader& header);

}  // namespace tanren
