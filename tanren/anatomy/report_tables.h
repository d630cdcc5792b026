// The tables of the report, cell by cell, shared by its text and its page.
#pragma once

#include "tanren/anatomy/report.h"
#include "tanren/page/table.h"

#include <string>
#include <vector>

namespace tanren {

std::vector<std::string> subject_lines(const Anatomy& anatomy);  // run, settings, machine
Table step_table(const Anatomy& anatomy);
Table class_table(const Anatomy& anatomy);
Table operator_table(const Anatomy& anatomy, size_t most);
Table node_table(const Anatomy& anatomy, size_t most);
Table block_table(const Anatomy& anatomy);
Table cut_table(const Anatomy& anatomy);  // no rows: the model was not cut
Table stage_table(const Anatomy& anatomy);
Table memory_table(const Anatomy& anatomy);
Table prediction_table(const Anatomy& anatomy);
// One sentence each; best first.
std::vector<std::string> advice_lines(const Anatomy& anatomy);

}  // namespace tanren
