// A restricted reader of Python pickles (protocols 0 to 5): it builds a document of plain nodes and
// executes nothing. Classes and functions are names; a call or an object is a node with the
// callable and its arguments. Nodes are in one vector and refer to each other by index, so neither
// depth nor cycles of a hostile file can overflow a stack. Their number is bounded.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

enum class PickleKind : uint8_t {
  none,
  boolean,     // integer: 0 or 1
  integer,     // integer
  big,         // text: little-endian two's complement, beyond 64 bits
  real,        // real
  text,        // text: UTF-8 as in the file
  bytes,       // text
  tuple,       // items
  list,        // items
  dict,        // items: key, value, key, value, …
  set,         // items
  global,      // text: "module.name"
  object,      // items: callable, arguments, state (or 0), then appended items or keys and values
  persistent,  // items: its id
};

struct PickleNode {
  PickleKind kind = PickleKind::none;
  bool keyed = false;  // object: the items after the state are keys and values
  union {
    int64_t integer = 0;
    double real;
  };
  std::string_view text;
  std::vector<uint32_t> items;
};

// Index 0 is always None.
struct Pickle {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;
  size_t size = 0;                // bytes of the pickle, including the final opcode
  std::deque<std::string> owned;  // texts that are not views of the bytes read

  const PickleNode& at(uint32_t index) const { return nodes[index]; }
};

// Reads the pickle at the start of `bytes`. The result holds views of `bytes`. CheckpointError
// (beginning with `where`) for anything malformed, an unknown opcode, or more than 2 million nodes.
Pickle read_pickle(std::string_view bytes, const std::string& where);

}  // namespace tanren
