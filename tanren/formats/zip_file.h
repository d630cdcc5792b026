// The entries of a stored (uncompressed) zip archive in memory, as torch.save writes it. Sizes,
// offsets and overlaps are checked against the bytes of the archive. Nothing is extracted, so names
// are only keys, not paths. Format: PKWARE APPNOTE 6.3, zip64 included.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tanren {

// Name → bytes of each entry that is stored uncompressed, as views of `file`. CheckpointError
// (beginning with `where`) for a damaged archive, an encrypted entry, entries that overlap, or a
// name that comes twice.
std::map<std::string, std::string_view> zip_entries(std::string_view file,
                                                    const std::string& where);

}  // namespace tanren
