// The step folders of one folder: their names and renames. Invariant: if a process is killed at any
// moment, the older or the newer save of each step is still complete, under a name that counts.
//   step-<n>                a save
//   .tmp-step-<n>-before    the older of two saves of a step, while the newer one replaces it; it
//                           counts as long as there is no complete step-<n>
//   .tmp-step-<n>-<random>  being written or removed; deleted at the next start or the next save
// One writer at a time (the run folder's lock ensures it). Called by checkpoint.cpp and the run
// folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tanren {

// The step of the save `folder`, by its name; -1: not the name of a save.
int64_t step_of(const std::filesystem::path& folder);
// Whether `folder` is a save, complete or not. It has the files of a save, or the name of one and
// lies in a folder `checkpoints`. The name alone does not count, because a run folder may be called
// step-3, too.
bool is_step_folder(const std::filesystem::path& folder);
// The complete saves, one per step, sorted by step.
std::vector<std::filesystem::path> complete_steps(const std::filesystem::path& folder);
// The complete save of `step`; empty: there is none.
std::filesystem::path complete_step(const std::filesystem::path& folder, int64_t step);

// Makes a new folder for the files of the save that becomes `target`. Throws filesystem_error.
std::filesystem::path make_step_folder(const std::filesystem::path& target);
// Renames the complete folder `made` to `target` and replaces an existing save of that name. Throws
// filesystem_error; then the existing save still counts.
void put_in_place(const std::filesystem::path& made, const std::filesystem::path& target);
// Removes all saves but the newest `keep`, `newest` and those of the steps `best`.
void remove_old(const std::filesystem::path& folder, int64_t keep,
                const std::filesystem::path& newest, const std::vector<int64_t>& best);
// Points the link to the first of the steps `best` that exists, in one rename. If none exists, the
// link is removed. Links are a convenience: on a file system without links the run continues
// without one.
void link_best(const std::filesystem::path& link, const std::vector<int64_t>& best);
// Removes what a dead process left half-written or half-removed.
void remove_unfinished(const std::filesystem::path& folder);

}  // namespace tanren
