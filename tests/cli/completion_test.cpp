// What shells offer on TAB, tested with the shells themselves; zsh and fish only if installed.
#include "tanren/base/testing.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

class Completion : public ::testing::Test {
 protected:
  ShellResult tanren(const std::string& arguments) const {
    return shell(forked_tanren() + " " + arguments, folder_.path());
  }

  // What bash offers at the end of `line`. `breaks` are bash's own word breaks, such as = and :.
  std::string offered(const std::string& line,
                      const std::string& breaks = " \\t\\n\"\\'><=;|&(:") const {
    if (!fs::exists(folder_.path() / "tanren.bash")) {
      EXPECT_EQ(tanren("completion bash > tanren.bash").code, 0);
    }
    folder_.file("ask.bash", "set -u\nsource tanren.bash\nCOMP_WORDBREAKS=$'" + breaks +
                                 "'\nCOMP_LINE=$1 COMP_POINT=${#1}\n_tanren && "
                                 "echo \"${COMPREPLY[*]-}\"\n");
    const auto result = shell("bash ask.bash '" + line + "'", folder_.path());
    EXPECT_EQ(result.code, 0) << result.output;
    return result.output.substr(0, result.output.find_last_not_of('\n') + 1);
  }

  TemporaryFolder folder_;
};

TEST_F(Completion, refuses_a_shell_that_it_does_not_know) {
  const auto result = tanren("completion tcsh");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output,
            "[cli] there is no completion for \"tcsh\"; shells are bash, fish, zsh\n");
  EXPECT_EQ(tanren("completion").code, 2);
}

TEST_F(Completion, offers_verbs_and_then_the_flags_of_the_verb) {
  EXPECT_EQ(
      offered("tanren "),
      "run plan eval predict generate launch summary sweep anatomy quantize convert doctor monitor "
      "runs help completion --help --version");
  EXPECT_EQ(offered("tanren pl"), "plan");
  EXPECT_EQ(offered("tanren predict --"), "--help --verbose --set --out --quiet --force");
  EXPECT_EQ(offered("tanren quantize --"), "--help --json --verbose --set --out --quiet --force");
  EXPECT_EQ(offered("tanren generate --"), "--help --prompt --json --verbose --set");
  EXPECT_EQ(offered("tanren xy"), "");
  EXPECT_EQ(offered("tanren run --"), "--help --json --verbose --set --out --quiet --fork");
  EXPECT_EQ(offered("tanren doctor --"), "--help --json");
  EXPECT_EQ(offered("tanren monitor --"), "--help --json --once --interval");
  EXPECT_EQ(offered("tanren convert --re"), "--rename");
  EXPECT_EQ(offered("tanren launch --"), "--help --ranks --nodes --node-rank --master");
  EXPECT_EQ(offered("tanren launch -n 4 "), "run eval predict");
  EXPECT_EQ(offered("tanren launch -n 4 run --"),
            "--help --json --verbose --set --out --quiet --fork");
  EXPECT_EQ(offered("tanren launch -n 4 run a.toml --set clip.n"), "clip.norm=");
  EXPECT_EQ(offered("tanren launch -n "), "");
  EXPECT_EQ(offered("tanren launch -n 4 -- ./pro"), "");
  EXPECT_EQ(offered("tanren completion "), "bash fish zsh");
}

TEST_F(Completion, offers_keys_after_set_and_the_words_of_closed_sets) {
  EXPECT_EQ(offered("tanren run a.toml --set clip."), "clip.norm= clip.value=");
  EXPECT_EQ(offered("tanren run a.toml --set optimizer.kind="),
            "adafactor adagrad adam adamw lion muon nadam radam rmsprop sgd");
  EXPECT_EQ(offered("tanren run a.toml --set optimizer.kind=s"), "sgd");
  EXPECT_EQ(offered("tanren run a.toml --set optimizer.kind=s", " \\t\\n"), "optimizer.kind=sgd");
  EXPECT_EQ(offered("tanren run a.toml --set run.device=cuda:"), "0");
  EXPECT_EQ(offered("tanren run a.toml --set run.deterministic="), "true false");
  EXPECT_EQ(offered("tanren run a.toml --set clip.norm="), "");
  EXPECT_EQ(offered("tanren convert a b --dtype b"), "bf16");
  EXPECT_EQ(offered("tanren help clip"), "clip clip.norm clip.value");
  // The keys of an objective contain its name.
  EXPECT_EQ(offered("tanren run a.toml --set objectives.critic.clip."),
            "objectives.critic.clip.norm= objectives.critic.clip.value=");
  EXPECT_EQ(offered("tanren run a.toml --set objectives.critic.ev"), "objectives.critic.every=");
  EXPECT_EQ(offered("tanren run a.toml --set objectives.critic.optimizer.kind=s"), "sgd");
}

TEST_F(Completion, every_word_that_it_offers_is_a_word_that_the_config_takes) {
  folder_.file("run.toml", "[run]\nsteps = 1\n[model]\nkind = \"mlp\"\n");
  for (const char* key : {"precision.mode", "optimizer.kind", "model.kind"}) {
    std::istringstream words(offered("tanren plan run.toml --set " + std::string(key) + "="));
    int count = 0;
    for (std::string word; words >> word; ++count) {
      const auto result = tanren("plan run.toml --set " + std::string(key) + "=" + word);
      EXPECT_EQ(result.output.find("is unknown"), std::string::npos) << result.output;
    }
    EXPECT_GE(count, 2) << key;
  }
}

TEST_F(Completion, completes_a_program_with_another_name_and_its_own_models) {
  fs::create_symlink(TANREN_BINARY, folder_.path() / "my-trainer");
  const auto result = shell("./my-trainer completion bash", folder_.path());
  TANREN_EXPECT_CONTAINS(result.output, "complete -o default -F _my_trainer my-trainer\n");
  TANREN_EXPECT_CONTAINS(result.output, "model.kind) echo 'bert convnet ");
}

TEST_F(Completion, zsh_reads_its_script) {
  if (shell("zsh --version", folder_.path()).code != 0) GTEST_SKIP() << "no zsh here";
  const auto result =
      shell("PATH=\"$(dirname " TANREN_BINARY
            "):$PATH\" zsh -fc 'autoload -Uz compinit; "
            "compinit -u -D; source <(tanren completion zsh); print $_comps[tanren]; "
            "_tanren_words optimizer.kind'",
            folder_.path());
  EXPECT_EQ(result.output,
            "_tanren\nadafactor adagrad adam adamw lion muon nadam radam rmsprop sgd\n");
}

TEST_F(Completion, fish_offers_verbs_keys_and_words) {
  if (shell("fish --version", folder_.path()).code != 0) GTEST_SKIP() << "no fish here";
  const auto ask = [&](const std::string& line) {
    return shell("HOME=$PWD PATH=\"$(dirname " TANREN_BINARY
                 "):$PATH\" fish --no-config -c '" TANREN_BINARY
                 " completion fish | source; complete -C \"" +
                     line + "\"'",
                 folder_.path())
        .output;
  };
  TANREN_EXPECT_CONTAINS(ask("tanren su"), "summary\t");
  TANREN_EXPECT_CONTAINS(ask("tanren run --q"), "--quiet\t");
  TANREN_EXPECT_CONTAINS(ask("tanren run a.toml --set clip."), "clip.norm=\t");
  TANREN_EXPECT_CONTAINS(ask("tanren run a.toml --set objectives.critic.clip."),
                         "objectives.critic.clip.norm=\t");
  TANREN_EXPECT_CONTAINS(ask("tanren run a.toml --set objectives.critic.optimizer.kind=s"),
                         "objectives.critic.optimizer.kind=sgd\t");
  const std::string kinds = ask("tanren run a.toml --set optimizer.kind=");
  TANREN_EXPECT_CONTAINS(kinds, "optimizer.kind=adamw\t");
  TANREN_EXPECT_CONTAINS(kinds, "optimizer.kind=sgd\t");
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), '\n'), 10) << kinds;
}

}  // namespace
}  // namespace tanren::testing
