// Tests README.md and docs/tutorial.md: runs every ```sh line on the ```toml files shown, and
// expects every line of a ```text block in the output of the ```sh block above it and every ```cpp
// block in an example. Also checks that the targets of all relative links in the documents exist.
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = TANREN_SOURCE_DIR;

struct Block {
  std::string language;
  std::string text;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Block> blocks_of(const std::string& markdown) {
  std::vector<Block> blocks;
  bool inside = false;
  for (const auto& line : lines_of(markdown)) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside;
      if (inside) blocks.push_back({line.substr(3), ""});
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

// Replaces several spaces by one, so that columns may be aligned differently.
std::string squeezed(const std::string& text) {
  static const std::regex spaces(" +");
  return std::regex_replace(text, spaces, " ");
}

// A README line as the test runs it. Training is shortened by the ci.toml of its example, or by
// that of digits. It replaces the length given in the line.
std::string shortened(const std::string& line) {
  static const std::regex training(R"(^\S*( launch -n \d+)? run (\S+\.toml)\b)");
  static const std::regex length(R"( --set run\.(epochs|steps)=\d+)");
  std::smatch match;
  if (!std::regex_search(line, match, training)) return line;
  fs::path ci = kSource / fs::path(match[2].str()).parent_path() / "ci.toml";
  if (!fs::exists(ci)) ci = kSource / "examples/digits/ci.toml";
  return std::regex_replace(line, length, "") + ci_options(ci);
}

// A line "… # exit 2: why" must end with that exit code.
int expected_code(const std::string& comment) {
  std::smatch match;
  static const std::regex exit_code(R"(exit (\d+))");
  return std::regex_search(comment, match, exit_code) ? std::stoi(match[1]) : 0;
}

// A temporary folder that looks like a built checkout to the lines of the README: it has examples/
// and build/release/, `tanren` is on the path (its commands are forks), and runs/ is its own.
class Checkout {
 public:
  Checkout() {
    fs::create_directory_symlink(kSource / "examples", folder_.path() / "examples");
    fs::create_directory(folder_.path() / "build");
    fs::create_directory_symlink(TANREN_BUILD_DIR, folder_.path() / "build/release");
    fs::create_directory(folder_.path() / "bin");
    const std::string forks = forked_tanren("tanren");
    if (forks == "tanren") return;  // no forks: uses the program of build/release
    const fs::path program = folder_.file("bin/tanren", "#!/bin/sh\nexec " + forks + " \"$@\"\n");
    fs::permissions(program, fs::perms::owner_all);
  }

  // Runs the lines of a ```sh block and returns their output.
  std::string run(const std::string& block) {
    std::string output;
    for (const auto& line : lines_of(block)) {
      const auto hash = line.find(" #");
      const std::string command = line.substr(0, hash);
      if (command.empty()) continue;
      if (command.rfind("make ", 0) == 0) {
        expect_make_target(command.substr(5, command.find(' ', 5) - 5));
        continue;
      }
      const auto result = shell("PATH=\"$PWD/bin:$PWD/build/release:$PATH\"; " + shortened(command),
                                folder_.path());
      EXPECT_EQ(result.code, expected_code(hash == std::string::npos ? "" : line.substr(hash)))
          << line << "\n"
          << result.output;
      output += result.output;
    }
    return output;
  }

  void write(const std::string& name, const std::string& text) { folder_.file(name, text); }

 private:
  static void expect_make_target(const std::string& target) {
    TANREN_EXPECT_CONTAINS(read_file(kSource / "Makefile"), "\n" + target + ":");
  }

  TemporaryFolder folder_;
};

// The name in the first line of a ```toml block: "# mlp.toml".
std::string file_name(const std::string& toml) {
  std::smatch match;
  static const std::regex comment(R"(^# (\S+\.toml)\b)");
  return std::regex_search(toml, match, comment) ? match[1].str() : "";
}

std::string all_examples() {
  std::string text;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "examples")) {
    if (entry.path().extension() == ".cpp") text += read_file(entry.path());
  }
  return text;
}

TEST(Readme, blocks_are_found_with_their_language) {
  const auto blocks = blocks_of("a\n```sh\nx\ny\n```\nb\n```toml\nz\n```\n");
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].language, "sh");
  EXPECT_EQ(blocks[0].text, "x\ny\n");
  EXPECT_EQ(blocks[1].language, "toml");
}

TEST(Readme, a_training_is_shortened_and_other_lines_stay) {
  EXPECT_EQ(shortened("tanren plan a.toml --set run.epochs=9"),
            "tanren plan a.toml --set run.epochs=9");
  const auto line = shortened("tanren run a.toml --set run.epochs=9 --out b");
  EXPECT_EQ(line.rfind("tanren run a.toml --out b --set run.epochs=1", 0), 0u) << line;
  const auto ranks = shortened("tanren launch -n 2 run a.toml");
  EXPECT_EQ(ranks.rfind("tanren launch -n 2 run a.toml --set run.epochs=1", 0), 0u) << ranks;
}

void expect_kept(const fs::path& document) {
  const auto blocks = blocks_of(read_file(document));
  ASSERT_GT(blocks.size(), 5u);
  const std::string examples = all_examples();
  Checkout checkout;
  std::string printed;
  for (const auto& block : blocks) {
    if (block.language == "sh") {
      printed = squeezed(checkout.run(block.text));
    } else if (block.language == "toml") {
      const std::string name = file_name(block.text);
      EXPECT_NE(name, "") << "no file name in the first line of:\n" << block.text;
      checkout.write(name, block.text);
    } else if (block.language == "cpp") {
      TANREN_EXPECT_CONTAINS(examples, block.text);
    } else if (block.language == "text") {
      for (const auto& line : lines_of(block.text)) {
        TANREN_EXPECT_CONTAINS(printed, squeezed(line));
      }
    } else {
      ADD_FAILURE() << "a block of language '" << block.language << "' is not tested";
    }
  }
}

TEST(Readme, every_snippet_does_what_it_says) { expect_kept(kSource / "README.md"); }

TEST(Tutorial, every_snippet_does_what_it_says) { expect_kept(kSource / "docs/tutorial.md"); }

TEST(Readme, relative_links_lead_somewhere) {
  static const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  std::vector<fs::path> files;
  for (const auto& folder : {kSource, kSource / "docs", kSource / "examples"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".md") files.push_back(entry.path());
      if (fs::exists(entry.path() / "README.md")) files.push_back(entry.path() / "README.md");
    }
  }
  EXPECT_GE(files.size(), 6u);
  for (const auto& file : files) {
    const std::string text = read_file(file);
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      EXPECT_TRUE(fs::exists(file.parent_path() / (*at)[1].str()))
          << file << " links to " << (*at)[1];
    }
  }
}

}  // namespace
}  // namespace tanren::testing
