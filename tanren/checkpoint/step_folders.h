// The step folders of one folder: their names, and how these change. Invariant: a process that is killed
// at any moment leaves of each step the older or the newer save whole, under a name that counts.
//   step-<n>                a save
//   .tmp-step-<n>-before    the older of two saves of a step, while the newer takes its place; it counts
//                           as long as there is no whole step-<n>
//   .tmp-step-<n>-<random>  being written or removed; goes with the next start, or the next save
// One writer at a time (the run folder's lock sees to it). Called by checkpoint.cpp and the run folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tanren {

// The step whose save `folder` is by its name; -1: of none.
int64_t step_of(const std::filesystem::path& folder);
// The whole saves, one a step, by step.
std::vector<std::filesystem::path> complete_steps(const std::filesystem::path& folder);
// The whole save of `step`; empty: there is none.
std::filesystem::path complete_step(const std::filesystem::path& folder, int64_t step);

// A new folder in which the save that becomes `target` is written. filesystem_error.
std::filesystem::path make_step_folder(const std::filesystem::path& target);
// Gives the whole folder `made` the name `target`, in the place of the save that may be there.
// filesystem_error, and then a save that was there still counts.
void put_in_place(const std::filesystem::path& made, const std::filesystem::path& target);
// Keeps the newest `keep` saves, `newest` and those of the steps `best`.
void remove_old(const std::filesystem::path& folder, int64_t keep,
                const std::filesystem::path& newest, const std::vector<int64_t>& best);
// Leads the link to the first of the steps `best` that is there, in one rename; without one the link
// goes. Links are a convenience: a file system without them costs no run.
void link_best(const std::filesystem::path& link, const std::vector<int64_t>& best);
// What a dead process left half-written or half-removed.
void remove_unfinished(const std::filesystem::path& folder);

}  // namespace tanren
