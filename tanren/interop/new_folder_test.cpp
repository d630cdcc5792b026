#include "tanren/interop/new_folder.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::TemporaryFolder;

TEST(NewFolder, takes_back_what_it_made_alone) {
  const TemporaryFolder root;
  {
    NewFolder made(root.path() / "above" / "below");
    root.file("above/below/a", "ours");
    EXPECT_EQ(made.place_of("a"), root.path() / "above" / "below" / "a");
    made.place_of("b");  // not written
    EXPECT_TRUE(fs::exists(root.path() / "above" / "below"));
  }
  EXPECT_TRUE(fs::is_empty(root.path()));
  {
    NewFolder made(root.path() / "kept");
    root.file("kept/a", "ours");
    made.place_of("a");
    made.keep();
  }
  EXPECT_TRUE(fs::exists(root.path() / "kept" / "a"));
}

// Regression: a file that the user saved there during a long convert was removed.
TEST(NewFolder, leaves_what_others_put_there_meanwhile) {
  const TemporaryFolder root;
  {
    NewFolder made(root.path() / "above" / "below");
    root.file("above/below/a", "ours");
    made.place_of("a");
    root.file("above/below/notes", "the user's");
  }
  EXPECT_FALSE(fs::exists(root.path() / "above" / "below" / "a"));
  EXPECT_TRUE(fs::exists(root.path() / "above" / "below" / "notes"));
}

// Regression: its files would lie in the working folder.
TEST(NewFolder, refuses_a_folder_without_a_name) {
  EXPECT_EQ(error_of<InputError>([] { NewFolder(""); }),
            "[convert] the folder to write has no name; give it one");
}

TEST(NewFolder, stays_where_it_was_there_before) {
  const TemporaryFolder root;
  {
    NewFolder made(root.path());
    root.file("a", "ours");
    made.place_of("a");
  }
  ASSERT_TRUE(fs::exists(root.path()));
  EXPECT_TRUE(fs::is_empty(root.path()));
}

// Regression: a link to a disk that is not mounted counted as missing and was removed.
TEST(NewFolder, refuses_a_link_to_nothing_and_leaves_it) {
  const TemporaryFolder root;
  const fs::path link = root.path() / "link";
  fs::create_directory_symlink(root.path() / "not_mounted" / "x", link);
  for (const fs::path& folder : {link, link / "above" / "below"}) {
    const std::string text = error_of<InputError>([&] { NewFolder made(folder); });
    TANREN_EXPECT_CONTAINS(text, link.string() + " is a link to nothing; make its target, or");
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(root.num_entries(), 1u);
  }
  const TemporaryFolder target;
  const fs::path sound = root.path() / "sound";
  fs::create_directory_symlink(target.path(), sound);
  { NewFolder made(sound / "below"); }
  EXPECT_TRUE(fs::is_symlink(sound));
  EXPECT_TRUE(fs::is_empty(target.path()));
}

TEST(NewFolder, that_cannot_be_made_leaves_nothing_behind) {
  const TemporaryFolder root;
  const fs::path folder = root.path() / "above" / std::string(300, 'n') / "below";
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { NewFolder made(folder); }),
                         "[convert] cannot make the folder ");
  EXPECT_TRUE(fs::is_empty(root.path()));
  root.file("file", "");
  for (const fs::path& other : {root.path(), root.path() / "file"}) {
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { NewFolder made(other); }),
                           "is there and holds something; name a new folder");
  }
}

}  // namespace
}  // namespace tanren
