// What fields.h says of a key beside its name and type.
#pragma once

namespace tanren {

// What a changed value means when a run folder goes on.
enum class Identity {
  defines,     // another run
  may_grow,    // the same run, longer
  on_request,  // another run, unless this start asks for the change (--set)
  evaluates,   // another run only where evaluations decide over it (plateau, best, early stop)
  by_name,     // a path: another run if its last name is another
  free,        // changes nothing that is trained, or the data's fingerprint tells
};

// Whether the text is a path, and so relative to where it was written.
enum class PathKind {
  none,
  file,
  file_or_name,  // a path only where there is such a folder or file
};

struct FieldInfo {
  const char* help;
  Identity identity = Identity::defines;
  bool number_or_word = false;  // a text field that also takes a number ("epoch" or 32)
  PathKind path = PathKind::none;
};

}  // namespace tanren
