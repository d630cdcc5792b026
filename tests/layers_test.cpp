// Checks the #include lines of tanren/ and cli/ against the table kFloors, which ARCHITECTURE.md
// explains. Also checks the length of files, and that the library neither prints nor exits.

#include "tanren/base/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tanren {
namespace {

namespace fs = std::filesystem;

using Lines = std::vector<std::string>;
using Tree = std::map<std::string, Lines>;  // path from the root ("tanren/base/text.h") → lines

constexpr size_t kMaxLines = 400;
constexpr size_t kMaxTestLines = 600;
constexpr int64_t kMaxColumns = 100;

struct Include {
  std::string path;
  bool angled = false;
};

std::vector<Include> includes_of(const Lines& lines) {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> found;
  std::smatch match;
  for (const auto& line : lines) {
    if (std::regex_search(line, match, pattern)) found.push_back({match[2], match[1] == "<"});
  }
  return found;
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

bool is_test(const std::string& path) {
  return path.size() > 9 && path.compare(path.size() - 9, 9, "_test.cpp") == 0;
}

// tanren/base/text.h → "base"; cli/run.cpp and the public header tanren/cli.h → "cli"; the umbrella
// header tanren/tanren.h → "tanren.h".
std::string room_of(const std::string& path) {
  if (starts_with(path, "cli/") || path == "tanren/cli.h") return "cli";
  const std::string rest = path.substr(std::string("tanren/").size());
  return rest.substr(0, rest.find('/'));
}

bool is_ours(const std::string& path) {
  return starts_with(path, "tanren/") || starts_with(path, "cli/");
}

bool is_torch(const std::string& path) {
  return starts_with(path, "torch/") || starts_with(path, "ATen/") || starts_with(path, "c10/");
}

// The rooms that each room may include besides itself, bottom up. `rooms` may name several rooms.
struct Floor {
  const char* rooms;
  const char* see;
};
constexpr const char* kGround = "base formats page dry comm blocks ops";
constexpr const char* kRooms =
    "checkpoint data guard memory metrics model optimizer parallel precision quantize";
constexpr Floor kFloors[] = {
    {"base", ""},
    {"config", "base"},
    {"plan", "base config"},
    {"formats page dry comm", "base"},
    {"blocks", "base dry"},
    {"ops", "base dry blocks"},
    {kRooms, "GROUND"},
    {"monitor", "base page"},
    {"sweep", "base config page"},
    {"train", "GROUND ROOMS"},
    {"interop forecast", "GROUND ROOMS config plan train"},
    {"run", "GROUND ROOMS config plan train interop forecast"},
    {"anatomy predict post_training", "GROUND ROOMS config plan train interop forecast run"},
    {"cli tanren.h",
     "GROUND ROOMS config plan monitor sweep train interop forecast run predict anatomy "
     "post_training cli"},
};
// Headers that all rooms above the ground may include: what the config asks, what the plan decided,
// and which kinds a program adds.
const std::set<std::string> kSharedHeaders{"tanren/config/run_config.h",
                                           "tanren/config/known_kinds.h", "tanren/config/kinds.h",
                                           "tanren/plan/plan.h"};
// These rooms never include torch, directly or through our headers.
const std::set<std::string> kTorchFree{"config", "plan", "page", "monitor", "sweep"};

std::set<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::set<std::string> words;
  for (std::string word; stream >> word;) {
    if (word != "GROUND" && word != "ROOMS") {
      words.insert(word);
      continue;
    }
    words.merge(words_of(word == "GROUND" ? kGround : kRooms));
  }
  return words;
}

// The rooms that `room` may include; nullopt if `room` is not in the table.
std::optional<std::set<std::string>> seen_from(const std::string& room) {
  for (const Floor& floor : kFloors) {
    if (words_of(floor.rooms).count(room) > 0) return words_of(floor.see);
  }
  return std::nullopt;
}

// Whether a file of room `from` may include `path` of room `to`. `from` may include the rooms
// `seen`.
bool may_include(const std::string& from, const std::set<std::string>& seen, const std::string& to,
                 const std::string& path) {
  if (from == to || seen.count(to) > 0) return true;
  const bool is_above = seen.count("ops") > 0;  // it may include the whole ground
  return is_above && kSharedHeaders.count(path) > 0;
}

// The first torch header that `path` reaches through our headers, or "".
std::string torch_reached(const Tree& tree, const std::string& path, std::set<std::string>& seen) {
  const auto file = tree.find(path);
  if (file == tree.end() || !seen.insert(path).second) return "";
  for (const auto& include : includes_of(file->second)) {
    if (is_torch(include.path)) return include.path + " (in " + path + ")";
    auto found = torch_reached(tree, include.path, seen);
    if (!found.empty()) return found;
  }
  return "";
}

void check_includes(const Tree& tree, const std::string& path, std::vector<std::string>& problems) {
  const std::string from = room_of(path);
  const auto seen = seen_from(from);
  if (!seen) {
    problems.push_back(path + " is in " + from + ", which is not in the table of floors");
    return;
  }
  for (const auto& include : includes_of(tree.at(path))) {
    if (include.path == "torch/torch.h") {
      problems.push_back(path +
                         " includes torch/torch.h, which costs 30 s; take the lightest header");
    }
    if (!is_ours(include.path)) continue;
    if (include.angled) problems.push_back(path + " includes <" + include.path + ">; use quotes");
    if (tree.count(include.path) == 0) {
      problems.push_back(path + " includes " + include.path + ", which does not exist");
    }
    if (!may_include(from, *seen, room_of(include.path), include.path)) {
      problems.push_back(path + " includes " + include.path + ", which is not under it");
    }
  }
  if (kTorchFree.count(from) > 0) {
    std::set<std::string> visited;
    const auto torch = torch_reached(tree, path, visited);
    if (!torch.empty()) problems.push_back(path + " reaches torch: " + torch);
  }
}

void check_text(const Tree& tree, const std::string& path, std::vector<std::string>& problems) {
  const auto& lines = tree.at(path);
  const size_t limit = is_test(path) ? kMaxTestLines : kMaxLines;
  if (lines.size() > limit) {
    problems.push_back(path + " has " + std::to_string(lines.size()) + " lines, more than " +
                       std::to_string(limit) + "; split it");
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (display_width(lines[i]) <= kMaxColumns) continue;
    problems.push_back(path + ":" + std::to_string(i + 1) + " has more than " +
                       std::to_string(kMaxColumns) + " columns; break the line");
  }
  if (fs::path(path).extension() == ".h" &&
      std::find(lines.begin(), lines.end(), "#pragma once") == lines.end()) {
    problems.push_back(path + " has no #pragma once");
  }
  // The library knows only the devices that Registry::accelerators names. Only tests name the
  // simulated device.
  for (const auto& line : lines) {
    if (line.find("PrivateUse1") == std::string::npos) continue;
    problems.push_back(path + " names the simulated accelerator's key: " + line);
  }
  // Only the default log of base/log.cpp may write to stderr.
  if (room_of(path) == "cli" || is_test(path) || path == "tanren/base/log.cpp") return;
  static const std::regex forbidden(
      R"((std::(cout|cerr|clog)|(^|[^>.\w])(printf|puts|putchar|exit|abort|terminate)\s*\((?!\)\s*override)))");
  for (const auto& line : lines) {
    const auto code = line.substr(0, line.find("//"));
    if (std::regex_search(code, forbidden)) {
      problems.push_back(path + " prints or ends the process: " + line);
    }
  }
}

// One line per violation, in the order of the paths.
std::vector<std::string> problems_of(const Tree& tree) {
  std::vector<std::string> problems;
  for (const auto& [path, lines] : tree) {
    check_includes(tree, path, problems);
    check_text(tree, path, problems);
  }
  return problems;
}

Tree read_tree(const fs::path& root) {
  Tree tree;
  for (const char* top : {"tanren", "cli"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const auto extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu") continue;
      std::ifstream in(entry.path());
      Lines lines;
      for (std::string line; std::getline(in, line);) lines.push_back(line);
      tree.emplace(fs::relative(entry.path(), root).generic_string(), std::move(lines));
    }
  }
  return tree;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

// A correct tree, to which tests add one violation.
Tree sound_tree() {
  return {
      {"tanren/base/text.h", {"#pragma once", "#include <string>"}},
      {"tanren/base/batch.h", {"#pragma once", "#include <ATen/core/Tensor.h>"}},
      {"tanren/config/run_config.h", {"#pragma once", "#include \"tanren/base/text.h\""}},
      {"tanren/config/read_config.h", {"#pragma once"}},
      {"tanren/plan/plan.h", {"#pragma once", "#include \"tanren/config/run_config.h\""}},
      {"tanren/monitor/runs.h", {"#pragma once", "#include \"tanren/base/text.h\""}},
      {"tanren/guard/guard.h", {"#pragma once", "#include \"tanren/plan/plan.h\""}},
      {"tanren/data/loader.h", {"#pragma once", "#include \"tanren/base/batch.h\""}},
      {"tanren/train/train_step.h", {"#pragma once", "#include \"tanren/guard/guard.h\""}},
      {"tanren/forecast/predict.h", {"#pragma once", "#include \"tanren/train/train_step.h\""}},
      {"tanren/interop/hub.h", {"#pragma once", "#include \"tanren/config/run_config.h\""}},
      {"tanren/run/run.h", {"#pragma once", "#include \"tanren/config/read_config.h\""}},
      {"cli/main.cpp", {"#include \"tanren/run/run.h\"", "int main() { printf(\"\"); }"}},
  };
}

struct Breach {
  std::string file;
  std::string line;
};

class LayersBreach : public testing::TestWithParam<Breach> {};

TEST_P(LayersBreach, is_reported_once_with_its_file) {
  Tree tree = sound_tree();
  tree[GetParam().file].push_back(GetParam().line);
  const auto problems = problems_of(tree);
  ASSERT_EQ(problems.size(), 1u) << joined(problems);
  EXPECT_TRUE(starts_with(problems[0], GetParam().file)) << problems[0];
}

INSTANTIATE_TEST_SUITE_P(
    Each, LayersBreach,
    testing::Values(Breach{"tanren/guard/guard.h", "#include \"tanren/data/loader.h\""},
                    Breach{"tanren/guard/guard.h", "#include \"tanren/train/train_step.h\""},
                    Breach{"tanren/guard/guard.h", "#include \"tanren/config/read_config.h\""},
                    Breach{"tanren/guard/guard.h", "  #  include \"tanren/run/run.h\""},
                    Breach{"tanren/guard/guard.h", "#include <tanren/base/text.h>"},
                    Breach{"tanren/guard/guard.h", "#include \"tanren/base/absent.h\""},
                    Breach{"tanren/guard/guard.h", "#include <torch/torch.h>"},
                    Breach{"tanren/guard/guard.h", "#include \"cli/main.cpp\""},
                    Breach{"tanren/base/text.h", "#include \"tanren/config/read_config.h\""},
                    Breach{"tanren/config/read_config.h", "#include \"tanren/plan/plan.h\""},
                    Breach{"tanren/config/read_config.h", "#include <c10/core/Device.h>"},
                    Breach{"tanren/config/read_config.h", "#include \"tanren/base/batch.h\""},
                    Breach{"tanren/monitor/runs.h", "#include \"tanren/base/batch.h\""},
                    Breach{"tanren/monitor/runs.h", "#include \"tanren/plan/plan.h\""},
                    Breach{"tanren/plan/plan.h", "#include \"tanren/guard/guard.h\""},
                    Breach{"tanren/forecast/predict.h", "#include \"tanren/interop/hub.h\""},
                    Breach{"tanren/interop/hub.h", "#include \"tanren/forecast/predict.h\""},
                    Breach{"tanren/interop/hub.h", "#include \"tanren/run/run.h\""},
                    Breach{"tanren/train/train_step.h", "#include \"tanren/run/run.h\""},
                    Breach{"tanren/train/train_step.h", "#include \"tanren/config/read_config.h\""},
                    Breach{"tanren/data/loader.h", "std::cout << \"loaded\";"},
                    Breach{"tanren/data/loader.h", "at::Device(at::DeviceType::PrivateUse1)"},
                    Breach{"tanren/data/loader.h", "std::exit(1);"}));

TEST(Layers, a_sound_tree_has_no_problem) { EXPECT_EQ(joined(problems_of(sound_tree())), ""); }

TEST(Layers, torch_is_found_through_headers_in_between) {
  Tree tree = sound_tree();
  tree["tanren/base/text.h"].push_back("#include \"tanren/base/batch.h\"");
  const auto problems = joined(problems_of(tree));
  EXPECT_NE(problems.find("tanren/plan/plan.h reaches torch: ATen/core/Tensor.h (in "
                          "tanren/base/batch.h)"),
            std::string::npos)
      << problems;
}

TEST(Layers, a_long_file_is_reported_and_a_test_may_be_longer) {
  Tree tree = sound_tree();
  tree["tanren/base/long.cpp"] = Lines(kMaxLines + 1, "x");
  tree["tanren/base/long_test.cpp"] = Lines(kMaxTestLines, "x");
  EXPECT_EQ(joined(problems_of(tree)),
            "tanren/base/long.cpp has 401 lines, more than 400; split it\n");
}

TEST(Layers, a_room_that_the_table_lacks_is_reported) {
  Tree tree = sound_tree();
  tree["tanren/attic/thing.h"] = {"#pragma once"};
  EXPECT_EQ(joined(problems_of(tree)),
            "tanren/attic/thing.h is in attic, which is not in the table of floors\n");
}

TEST(Layers, a_wide_line_is_reported) {
  Tree tree = sound_tree();
  std::string widest = "// ";
  for (int i = 0; i < 97; ++i) widest += "é";  // 100 columns, and more bytes
  tree["tanren/base/text.h"].push_back(widest);
  EXPECT_EQ(joined(problems_of(tree)), "");
  tree["tanren/base/text.h"].push_back(widest + "x");
  EXPECT_EQ(joined(problems_of(tree)),
            "tanren/base/text.h:4 has more than 100 columns; break the line\n");
}

TEST(Layers, a_header_without_pragma_once_is_reported) {
  Tree tree = sound_tree();
  tree["tanren/base/bare.h"] = {"struct Bare {};"};
  EXPECT_EQ(joined(problems_of(tree)), "tanren/base/bare.h has no #pragma once\n");
}

TEST(Layers, the_source_tree_keeps_the_rules) {
  const Tree tree = read_tree(TANREN_SOURCE_DIR);
  EXPECT_GT(tree.size(), 30u) << "the sources were not found";
  EXPECT_EQ(joined(problems_of(tree)), "");
}

}  // namespace
}  // namespace tanren
