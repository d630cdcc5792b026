// What fields.h says of a key beside its name and type.
#pragma once

namespace tanren {

// What a changed value means when a run folder goes on.
enum class Identity {
  defines,   // another run
  may_grow,  // the same run, longer
  free,      // changes nothing that is trained
};

struct FieldInfo {
  const char* help;
  Identity identity = Identity::defines;
  bool number_or_word = false;  // a text field that also takes a number ("epoch" or 32)
};

}  // namespace tanren
