#include "tanren/formats/pickle.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <unordered_map>

namespace tanren {

namespace {

constexpr size_t kMaxNodes = size_t{1} << 21;
constexpr size_t kMaxItems = size_t{1} << 24;  // references, in all nodes and the stack
constexpr size_t kMaxOwned = size_t{1} << 22;

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {
    make(PickleKind::none);
  }

  Pickle read() {
    for (;;) {
      const auto opcode = static_cast<unsigned char>(take(1)[0]);
      if (opcode == '.') break;
      if (!atom(opcode) && !text(opcode) && !container(opcode) && !object(opcode) &&
          !memory(opcode)) {
        fail(fmt::format("opcode {} is not one that tensors need", opcode));
      }
    }
    document_.root = pop();
    document_.size = at_;
    return std::move(document_);
  }

 private:
  using Kind = PickleKind;

  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError(
        fmt::format("{}: the pickle is malformed or hostile at byte {}: {}; save it again as a "
                    "state_dict, or as safetensors",
                    where_, at_, one_line(what)));
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) fail("it ends too early");
    const auto part = bytes_.substr(at_, size);
    at_ += size;
    return part;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("a line has no end");
    const auto part = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return part;
  }

  uint32_t make(Kind kind) {
    if (document_.nodes.size() >= kMaxNodes) fail("it has more than 2 million values");
    document_.nodes.emplace_back().kind = kind;
    return static_cast<uint32_t>(document_.nodes.size() - 1);
  }
  PickleNode& node(uint32_t index) { return document_.nodes[index]; }

  void count_item() {
    if (++items_ > kMaxItems) fail("it has more than 16 million references");
  }
  void push(uint32_t index) {
    count_item();
    stack_.push_back(index);
  }
  uint32_t pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("its stack is empty");
    const auto index = stack_.back();
    stack_.pop_back();
    return index;
  }
  uint32_t& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("its stack is empty");
    return stack_.back();
  }
  // Pops the items above the last mark, and the mark.
  std::vector<uint32_t> pop_mark() {
    if (marks_.empty()) fail("there is no mark");
    std::vector<uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_integer(Kind kind, int64_t value) {
    const auto index = make(kind);
    node(index).integer = value;
    push(index);
  }
  void push_text(Kind kind, std::string_view text) {
    const auto index = make(kind);
    node(index).text = text;
    push(index);
  }
  void push_items(Kind kind, std::vector<uint32_t> items) {
    const auto index = make(kind);
    node(index).items = std::move(items);
    push(index);
  }
  void push_long(std::string_view digits) {
    if (digits.size() > 8) return push_text(Kind::big, digits);
    uint64_t value = 0;
    for (size_t i = 0; i < digits.size(); ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(digits[i])) << (8 * i);
    }
    const size_t bits = 8 * digits.size();
    const bool negative = bits > 0 && bits < 64 && (value >> (bits - 1)) != 0;
    push_integer(Kind::integer,
                 static_cast<int64_t>(negative ? value | (~uint64_t{0} << bits) : value));
  }
  template <typename T>
  T parsed(std::string_view text) const {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail("a number is none");
    return value;
  }

  // Numbers, constants and frames.
  bool atom(unsigned char opcode) {
    switch (opcode) {
      case 0x80: take(1); return true;  // protocol
      case 0x95: take(8); return true;  // frame
      case 'N': push(0); return true;
      case 0x88: push_integer(Kind::boolean, 1); return true;
      case 0x89: push_integer(Kind::boolean, 0); return true;
      case 'J': push_integer(Kind::integer, number<int32_t>()); return true;
      case 'K': push_integer(Kind::integer, number<uint8_t>()); return true;
      case 'M': push_integer(Kind::integer, number<uint16_t>()); return true;
      case 'I': {
        const auto text = line();
        const bool truth = text == "00" || text == "01";
        push_integer(truth ? Kind::boolean : Kind::integer, parsed<int64_t>(text));
        return true;
      }
      case 'L': {
        auto text = line();
        if (!text.empty() && text.back() == 'L') text.remove_suffix(1);
        push_integer(Kind::integer, parsed<int64_t>(text));
        return true;
      }
      case 0x8a: push_long(take(number<uint8_t>())); return true;
      case 0x8b: push_long(take(number<uint32_t>())); return true;
      case 'G':
      case 'F': {
        double value = 0;
        if (opcode == 'F') {
          value = parsed<double>(line());
        } else {
          value = std::bit_cast<double>(__builtin_bswap64(number<uint64_t>()));
        }
        const auto index = make(Kind::real);
        node(index).real = value;
        push(index);
        return true;
      }
      default: return false;
    }
  }

  bool text(unsigned char opcode) {
    switch (opcode) {
      case 'X':
      case 'T': push_text(Kind::text, take(number<uint32_t>())); return true;
      case 0x8c:
      case 'U': push_text(Kind::text, take(number<uint8_t>())); return true;
      case 0x8d: push_text(Kind::text, take(number<uint64_t>())); return true;
      case 'V': push_text(Kind::text, line()); return true;
      case 'S': {
        auto quoted = line();
        if (quoted.size() < 2 || quoted.front() != quoted.back()) fail("a text has no quotes");
        push_text(Kind::text, quoted.substr(1, quoted.size() - 2));
        return true;
      }
      case 'B': push_text(Kind::bytes, take(number<uint32_t>())); return true;
      case 'C': push_text(Kind::bytes, take(number<uint8_t>())); return true;
      case 0x8e:
      case 0x96: push_text(Kind::bytes, take(number<uint64_t>())); return true;
      default: return false;
    }
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        count_item();
        marks_.push_back(stack_.size());
        return true;
      case '0':
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
        } else {
          pop();
        }
        return true;
      case '1': pop_mark(); return true;
      case '2': push(top()); return true;
      case ')': push_items(Kind::tuple, {}); return true;
      case 't': push_items(Kind::tuple, pop_mark()); return true;
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<uint32_t> items(opcode - 0x84u);
        for (size_t i = items.size(); i > 0; --i) items[i - 1] = pop();
        push_items(Kind::tuple, std::move(items));
        return true;
      }
      case ']': push_items(Kind::list, {}); return true;
      case 'l': push_items(Kind::list, pop_mark()); return true;
      case '}': push_items(Kind::dict, {}); return true;
      case 'd': push_items(Kind::dict, even(pop_mark())); return true;
      case 0x8f: push_items(Kind::set, {}); return true;
      case 0x91: push_items(Kind::set, pop_mark()); return true;
      case 'a': add({pop()}, false); return true;
      case 'e':
      case 0x90: add(pop_mark(), false); return true;
      case 's': {
        const auto value = pop();
        const auto key = pop();
        add({key, value}, true);
        return true;
      }
      case 'u': add(even(pop_mark()), true); return true;
      default: return false;
    }
  }

  std::vector<uint32_t> even(std::vector<uint32_t> items) const {
    if (items.size() % 2 != 0) fail("a key has no value");
    return items;
  }

  // Appends to the container on top of the stack. An object (an OrderedDict, say) takes either
  // single items or keys and values.
  void add(const std::vector<uint32_t>& items, bool keyed) {
    PickleNode& target = node(top());
    const bool object = target.kind == Kind::object;
    const bool fits =
        keyed ? target.kind == Kind::dict : target.kind == Kind::list || target.kind == Kind::set;
    const bool first = object && target.items.size() == 3;
    if (!fits && !(object && (first || target.keyed == keyed))) fail("it adds to no container");
    if (object) target.keyed = keyed;
    for (size_t i = 0; i < items.size(); ++i) count_item();
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  // Names may be recalled from the memo, so the file's size does not bound their total size.
  void push_global(std::string_view module, std::string_view name) {
    owned_bytes_ += module.size() + name.size() + 1;
    if (owned_bytes_ > bytes_.size() + kMaxOwned) fail("its classes have absurd names");
    document_.owned.push_back(std::string(module) + "." + std::string(name));
    push_text(Kind::global, document_.owned.back());
  }
  void push_object(uint32_t callable, uint32_t arguments) {
    push_items(Kind::object, {callable, arguments, 0});
  }

  bool object(unsigned char opcode) {
    switch (opcode) {
      case 'c': {
        const auto module = line();
        push_global(module, line());
        return true;
      }
      case 0x93: {
        const auto name = pop();
        const auto module = pop();
        if (node(name).kind != Kind::text || node(module).kind != Kind::text) {
          fail("a class has no name");
        }
        push_global(node(module).text, node(name).text);
        return true;
      }
      case 'R':
      case 0x81: {
        const auto arguments = pop();
        push_object(pop(), arguments);
        return true;
      }
      case 0x92: {
        pop();  // keyword arguments
        const auto arguments = pop();
        push_object(pop(), arguments);
        return true;
      }
      case 'i':
      case 'o': {
        auto items = pop_mark();
        if (opcode == 'i') {
          const auto module = line();
          push_global(module, line());
        } else {
          if (items.empty()) fail("an object has no class");
          push(items.front());
          items.erase(items.begin());
        }
        push_items(Kind::tuple, std::move(items));
        const auto arguments = pop();
        push_object(pop(), arguments);
        return true;
      }
      case 'b': {
        const auto state = pop();
        PickleNode& target = node(top());
        if (target.kind != Kind::object) fail("it gives a state to no object");
        target.items[2] = state;
        return true;
      }
      case 'Q': {
        const auto id = pop();
        push_items(Kind::persistent, {id});
        return true;
      }
      default: return false;
    }
  }

  bool memory(unsigned char opcode) {
    switch (opcode) {
      case 'q': put(number<uint8_t>()); return true;
      case 'r': put(number<uint32_t>()); return true;
      case 'p': put(parsed<uint32_t>(line())); return true;
      case 0x94: put(static_cast<uint32_t>(memo_.size())); return true;
      case 'h': get(number<uint8_t>()); return true;
      case 'j': get(number<uint32_t>()); return true;
      case 'g': get(parsed<uint32_t>(line())); return true;
      default: return false;
    }
  }
  void put(uint32_t key) {
    if (memo_.size() > kMaxNodes) fail("it stores more than 2 million values");
    memo_[key] = top();
  }
  void get(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("it recalls what was never stored");
    push(found->second);
  }

  std::string_view bytes_;
  const std::string& where_;
  size_t at_ = 0;
  size_t items_ = 0;
  size_t owned_bytes_ = 0;
  Pickle document_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, uint32_t> memo_;
};

}  // namespace

Pickle read_pickle(std::string_view bytes, const std::string& where) {
  return Reader(bytes, where).read();
}

}  // namespace tanren
