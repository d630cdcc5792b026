// What fields.h records about a key besides its name and type.
#pragma once

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

// Whether the text is a path, which is relative to the place where it was written.
enum class PathKind {
  none,
  file,
  file_or_name,  // a path only if such a folder or file exists
};

struct FieldInfo {
  const char* help;
  Identity identity = Identity::defines;
  bool number_or_word = false;  // a text field that also takes a number ("epoch" or 32)
  PathKind path = PathKind::none;
};

}  // namespace tanren
