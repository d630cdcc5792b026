// Every key of a config as data: a pointer to its field, help text and role in identity. fields()
// of each section, in sections/<section>.cpp, is the only list of its keys. Reading, --set, help,
// docs, nearest names, identity and writing all use fields_of() and name no key themselves.
#pragma once

#include "tanren/config/run_config.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tanren {

// What a changed value means when a run resumes in its folder.
enum class Identity {
  defines,     // a different run
  may_grow,    // a larger value is the same run, longer
  on_request,  // a different run, unless this start requests the change (--set)
  evaluates,   // a different run only if evaluations decide over it (plateau, best, early stop)
  by_name,     // a path: a different run if its last component differs
  free,        // does not change training, or the data's fingerprint detects the change
};

// What the text of a key stands for. A path is relative to the place where it was written.
enum class TextKind {
  word,
  number_or_word,  // also takes a number ("epoch" or 32)
  file,
  file_or_name,  // a path only if such a folder or file exists
};

struct FieldInfo {
  Identity identity;
  const char* help;
  TextKind text = TextKind::word;
};

// The types that a key may have. value_text.cpp has their names, in this order.
using Member =
    std::variant<std::string*, bool*, int64_t*, double*, std::optional<bool>*,
                 std::optional<int64_t>*, std::optional<double>*, std::vector<std::string>*,
                 std::vector<int64_t>*, std::vector<double>*, std::map<std::string, std::string>*,
                 std::map<std::string, double>*, std::vector<GroupOptions>*,
                 std::vector<UnfreezeOptions>*, std::vector<DimensionOptions>*>;

struct Field {
  std::string key;  // such as "run.steps"
  Member member;
  FieldInfo info;

  template <typename T>
  bool is() const {
    return std::holds_alternative<T*>(member);
  }
  // is<T>() must hold.
  template <typename T>
  T& as() const {
    return *std::get<T*>(member);
  }
};

// A list of fields, to which fields() adds those of a section.
struct FieldList {
  std::string prefix;  // of each key, such as "run."
  std::vector<Field> fields;

  void operator()(const char* name, Member member, Identity identity, const char* help,
                  TextKind text = TextKind::word);
  void operator()(const char* name, Member member, const char* help) {
    (*this)(name, member, Identity::defines, help);
  }
};

void fields(FieldList& add, RunOptions& o);
void fields(FieldList& add, ModelOptions& o);
void fields(FieldList& add, UnfreezeOptions& o);
void fields(FieldList& add, DataOptions& o);
void fields(FieldList& add, SourceOptions& o);
void add_table_fields(FieldList& add, SourceOptions& o);  // those about the columns of a table
void fields(FieldList& add, BatchOptions& o);
void fields(FieldList& add, PrecisionOptions& o);
void fields(FieldList& add, OptimizerOptions& o);
void fields(FieldList& add, GroupOptions& o);
void fields(FieldList& add, ScheduleOptions& o);
void fields(FieldList& add, ClipOptions& o);
void fields(FieldList& add, ObjectiveOptions& o);  // without its sections
void fields(FieldList& add, GuardOptions& o);
void fields(FieldList& add, MemoryOptions& o);
void fields(FieldList& add, ParallelOptions& o);
void fields(FieldList& add, AverageOptions& o);
void fields(FieldList& add, EvaluateOptions& o);
void fields(FieldList& add, EarlyStopOptions& o);
void fields(FieldList& add, CheckpointOptions& o);
void fields(FieldList& add, MetricsOptions& o);
void fields(FieldList& add, GenerateOptions& o);
void fields(FieldList& add, PredictOptions& o);
void fields(FieldList& add, QuantizeOptions& o);
void fields(FieldList& add, DimensionOptions& o);
void fields(FieldList& add, SweepOptions& o);  // sweep.space is one field

// The fields of one section or table. Each key is `prefix` and the name in the section.
template <typename Options>
std::vector<Field> fields_of(Options& options, const std::string& prefix = "") {
  FieldList list{prefix, {}};
  fields(list, options);
  return list.fields;
}

// All fields of a config, in the order of the documentation, including those of its objectives.
// They point into `config`.
std::vector<Field> fields_of(RunConfig& config);

// The field of that key; null if there is none.
const Field* find_field(const std::vector<Field>& fields, std::string_view key);

std::vector<std::string> keys_of(const std::vector<Field>& fields);

// Whether the field is a list of tables, such as [[optimizer.groups]].
bool is_table_list(const Field& field);

// Appends a table to such a list and returns its fields. Empty for any other field.
std::vector<Field> append_table(const Field& list);

}  // namespace tanren
