#!/usr/bin/env bash
# Installs the build, moves the installed folder, checks that no file of the package names a folder
# of this machine, and builds and runs examples/use_from_cmake against it.
#   install_test.sh SOURCE BUILD LIBTORCH
set -euo pipefail
source=$1 build=$2 libtorch=$3
work=$build/install_test # always the same folder, for hits in the compiler cache
rm -rf "$work"
mkdir -p "$work"

fail() {
  echo "[install] $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$work/first" > "$work/install.log"
mv "$work/first" "$work/moved"
cd "$work"

for file in bin/tanren include/tanren/tanren.h include/tanren/cli.h lib/cmake/tanren/tanrenConfig.cmake \
  lib/cmake/tanren/tanrenConfigVersion.cmake lib/cmake/tanren/tanrenTargets.cmake \
  lib/cmake/tanren/fetch-libtorch lib/cmake/tanren/Codecs.cmake share/bash-completion/completions/tanren \
  share/zsh/site-functions/_tanren share/fish/vendor_completions.d/tanren.fish \
  share/tanren/python/tanren_ray.py; do
  [ -s "moved/$file" ] || fail "$file is missing"
done
[ -z "$(find moved/include -name '*test*')" ] || fail "test headers are installed"
for folder in "$source" "$build" "$libtorch"; do # not "/tanren" in "${prefix}/tanren/…"
  # shellcheck disable=SC2016
  printf '%s\n' "(^|-[IL]|[^]})[:alnum:]_./-])$(sed 's/[][\\.*^$+?(){}|]/\\&/g' <<< "$folder")(/|[^[:alnum:]_.-]|\$)"
done > folders
if grep -rnE -f folders moved/lib/cmake moved/include; then
  fail "the package names a folder of this machine"
fi

moved/bin/tanren doctor > doctor.log || fail "the installed tanren does not start"
cmake -S "$source/examples/use_from_cmake" -B app -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/moved" -DTANREN_LIBTORCH="$libtorch" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$source/scripts/ccache-launch" > configure.log ||
  fail "configure: $(cat configure.log)"
cmake --build app > build.log || fail "build: $(cat build.log)"

if app/app none.toml run 2> error.log; then fail "a missing config was accepted"; fi
grep -q '^\[config\] none.toml does not exist' error.log || fail "$(cat error.log)"
app/app "$source/examples/use_from_cmake/run.toml" run > run.log || fail "run: $(cat run.log)"
grep -q '^30 steps, loss ' run.log || fail "$(cat run.log)"
[ -s run/checkpoints/step-30/COMPLETE ] || fail "no checkpoint"

# A project that requires another version gets an error with that version.
mkdir other
cat > other/CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.25)
project(other LANGUAGES NONE)
find_package(tanren 9.0 REQUIRED)
END
if cmake -S other -B other/build -DCMAKE_PREFIX_PATH="$work/moved" > other.log 2>&1; then
  fail "version 9.0 was found"
fi
grep -q 'requested version "9.0"' other.log || fail "$(cat other.log)"

# Without the codec libraries find_package is not fatal, and names the missing ones.
mkdir bare
cat > bare/CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.25)
project(bare LANGUAGES NONE)
set(CMAKE_FIND_LIBRARY_SUFFIXES .none)
find_package(tanren QUIET)
message(STATUS "found ${tanren_FOUND}: ${tanren_NOT_FOUND_MESSAGE}")
END
cmake -S bare -B bare/build -DCMAKE_PREFIX_PATH="$work/moved" > bare.log 2>&1 || fail "$(cat bare.log)"
grep -q 'found 0: .*libspng (Debian: libspng-dev)' bare.log || fail "$(cat bare.log)"
echo "installed, moved and used"
