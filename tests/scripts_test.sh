#!/usr/bin/env bash
# Tests scripts/setup and scripts/fetch-libtorch in a sandbox: PATH holds only the fake programs of
# the case, so nothing is installed or fetched and no Python runs. Then tests which versions of
# toml++ are refused.
#   scripts_test.sh SOURCE BUILD CXX CMAKE
set -euo pipefail
source=$1 build=$2 cxx=$3 cmake=$4
work=$build/scripts_test
cxx=$(command -v "$cxx") cmake=$(command -v "$cmake")
real_path=$PATH
unset HOME XDG_CACHE_HOME CXX CMAKE_ARGS CPATH CPLUS_INCLUDE_PATH
rm -rf "$work"

fail() {
  echo "[scripts] $case: $*" >&2
  [ ! -s "$work/said" ] || sed 's/^/  said: /' "$work/said" >&2
  exit 1
}

program() { # NAME: writes a program with the script on stdin
  { echo '#!/bin/bash'; cat; } > "$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# Sets up a machine with all that the build needs, without a package manager, and a non-root user.
begin() { # CASE
  PATH=$real_path
  case=$1
  rm -rf "$work"
  mkdir -p "$work/bin" "$work/home"
  for name in awk bash cat chmod cp cut dirname env find flock grep mkdir mktemp mv rm sed sort sync tail \
    touch true uname xargs; do
    ln -s "$(command -v "$name")" "$work/bin/$name"
  done
  for header in toml++/toml.h CLI/CLI.hpp nlohmann/json.hpp xxhash.h protozero/pbf_writer.hpp \
    utf8proc.h jpeglib.h spng.h gtest/gtest.h gmock/gmock.h; do
    mkdir -p "$work/include/$(dirname "$header")"
    touch "$work/include/$header"
  done
  program id <<< 'echo 1000'
  program getent <<< "echo 'somebody:x:1000:1000::$work/home:/bin/sh'"
  program ninja <<< 'echo 1.11.1'
  program cmake <<< 'echo "cmake version 3.31.6"'
  program c++ << END
case "\$*" in
  *-fsyntax-only*) cat > /dev/null ;;
  *) exec "$cxx" -nostdinc -I "$work/include" "\$@" ;;
esac
END
  program python3 << END
case "\$*" in
  "-m pip --version") ;;
  *"pip download"*)
    echo download >> "$work/log"
    while [ "\$1" != -d ]; do shift; done
    echo wheel > "\$2/torch.whl" ;;
  "- "*)
    cat > /dev/null
    mkdir -p "\$2/torch/lib" "\$2/torch/include"
    echo code > "\$2/torch/lib/libtorch_cpu.so"
    echo text > "\$2/torch/include/torch.h"
    [ ! -e "$work/power_loss" ] || kill -9 \$PPID ;;
esac
END
  # Makes that tree's sizes look like those of the real one.
  local sizes
  sizes=$(sed -n 's/^ *sizes=\([0-9a-f]*\).*/\1/p' "$source/scripts/fetch-libtorch")
  program sha256sum << END
if [ "\$(cat)" = "5 torch/include/torch.h
5 torch/lib/libtorch_cpu.so" ]; then echo "$sizes  -"; else echo "0  -"; fi
END
  for name in mv sync; do # logs which folders are flushed and renamed, in order
    local real
    real=$(readlink "$work/bin/$name")
    rm "$work/bin/$name"
    program "$name" <<< "echo \"$name \${*//unpack.??????/unpack}\" >> $work/log; exec $real \"\$@\""
  done
  PATH=$work/bin
}

runs() { # SCRIPT…
  "$source/scripts/$1" "${@:2}" > "$work/said" 2>&1 < /dev/null || fail "ended with $?"
}
refuses() { # SCRIPT…: expects failure with one line
  if "$source/scripts/$1" "${@:2}" > "$work/said" 2>&1 < /dev/null; then fail "went on"; fi
  [ "$(grep -c '' "$work/said")" = 1 ] || fail "said more or less than one line"
}
says() { grep -qF -e "$1" "$work/said" || fail "did not say: $1"; }
logged() { [ "$(cat "$work/log" 2> /dev/null)" = "$1" ] || fail "did: $(cat "$work/log")"; }
apt() { # a fake apt-get that installs ninja
  program apt-get << END
echo "\$*" >> "$work/log"
[ "\$1" != install ] || { echo 'exit 0' > "$work/bin/ninja"; chmod +x "$work/bin/ninja"; }
END
}

begin "what is there is taken, whoever put it there; without git and ccache too"
apt
runs setup
[ ! -s "$work/said" ] || fail "spoke"
logged ""

begin "a user who cannot install is told the one command"
apt
rm "$work/bin/ninja"
rm "$work/include/spng.h"
refuses setup
says "[setup] missing: ninja, spng.h; run this once, then repeat: sudo apt-get install -y --no-install-recommends ninja-build libspng-dev"
logged ""

begin "other distributions have their own names"
rm "$work/include/nlohmann/json.hpp"
program dnf <<< ''
refuses setup
says "sudo dnf install -y json-devel"
rm "$work/bin/dnf"
program pacman <<< ''
refuses setup
says "sudo pacman -S --needed nlohmann-json"
rm "$work/bin/pacman"
refuses setup
says "[setup] missing: nlohmann/json.hpp; install that, then repeat"

begin "an old cmake is none"
apt
program cmake <<< 'echo "cmake version 3.22.1"'
refuses setup
says "missing: cmake 3.25 or newer; run this once, then repeat: sudo apt-get"

begin "root installs what is missing and nothing else"
apt
program id <<< 'echo 0'
program ccache <<< ''
rm "$work/bin/ninja"
runs setup
logged "update -qq
install -y --no-install-recommends -qq ninja-build"

begin "what no package of the system fixes is said"
apt
program id <<< 'echo 0'
program cmake <<< 'echo "cmake version 3.22.1"'
if "$source/scripts/setup" > "$work/said" 2>&1; then fail "went on"; fi
says "[setup] still missing: cmake 3.25 or newer"

whole="download
sync -f $work/home/.cache/tanren/unpack/tree
mv $work/home/.cache/tanren/unpack/tree $work/home/.cache/tanren/libtorch-2.11.0-$(uname -m)
sync $work/home/.cache/tanren"
if [ "$(uname -m)" = x86_64 ]; then # the one with pinned wheels
  begin "libtorch goes to the user's home without HOME, flushed before it is renamed, and only once"
  runs fetch-libtorch
  folder=$work/home/.cache/tanren/libtorch-2.11.0-x86_64
  [ "$(tail -n 1 "$work/said")" = "$folder" ] || fail "where is it"
  logged "$whole"
  runs fetch-libtorch
  runs fetch-libtorch --have
  logged "$whole"

  case="a half-written libtorch is noticed and fetched again"
  : > "$folder/torch/lib/libtorch_cpu.so"
  if "$source/scripts/fetch-libtorch" --have > "$work/said" 2>&1; then fail "took it"; fi
  runs fetch-libtorch
  says "$folder is not whole"
  logged "$whole
$whole"
  [ -s "$folder/torch/lib/libtorch_cpu.so" ] || fail "is still empty"

  begin "a fetch that was killed leaves no libtorch, and its folder goes with the next"
  touch "$work/power_loss"
  if ("$source/scripts/fetch-libtorch"; exit $?) > "$work/said" 2>&1; then fail "went on"; fi
  cache=$work/home/.cache/tanren
  compgen -G "$cache/unpack.*" > /dev/null || fail "nothing was left behind"
  [ ! -e "$cache/libtorch-2.11.0-x86_64" ] || fail "left half a libtorch"
  rm "$work/power_loss"
  runs fetch-libtorch
  if compgen -G "$cache/unpack.*"; then fail "the folder of the killed one is still there"; fi

  begin "a user without a home is told what to set"
  program getent <<< 'echo "nobody:x:65534:65534::"'
  refuses fetch-libtorch
  says "XDG_CACHE_HOME and HOME are unset and the user has no home; set one, or pass -DTANREN_LIBTORCH="

  begin "a cache that cannot be written is named"
  : > "$work/file"
  XDG_CACHE_HOME=$work/file refuses fetch-libtorch
  says "cannot write to $work/file/tanren; set XDG_CACHE_HOME"
fi

# CMake refuses other versions of toml++ with their number, and the header refuses them too.
begin "a toml++ whose inner names are not known is refused"
PATH=$real_path
rm -r "$work/include/toml++"
mkdir -p "$work/include/toml++/impl"
for version in 2.5 3.2 3.3 3.4 3.5 4.3; do
  ending=h is_hpp=0
  case $version in 3.[45] | 4.*) ending=hpp is_hpp=1 ;; esac
  rm -f "$work"/include/toml++/impl/*
  printf '#define TOML_LIB_MAJOR %s\n#define TOML_LIB_MINOR %s\n#define TOML_LIB_PATCH 0\n' \
    "${version%.*}" "${version#*.}" > "$work/include/toml++/impl/version.$ending"
  echo '#include "version.'$ending'"' > "$work/include/toml++/impl/preprocessor.$ending"
  touch "$work/include/toml++/impl/unicode_autogenerated.$ending" "$work/include/toml++/toml.h"
  cmake_takes=yes header_takes=yes
  "$cmake" -DTANREN_TOML_INCLUDE="$work/include" -P "$source/cmake/Toml.cmake" > "$work/said" 2>&1 || cmake_takes=no
  "$cxx" -std=c++20 -E -DTANREN_TOML_HPP=$is_hpp -I "$work/include" "$source/tanren/config/toml.h" > /dev/null 2> "$work/error" ||
    header_takes=no
  case $version in
    3.3 | 3.4) [ "$cmake_takes $header_takes" = "yes yes" ] || fail "$version: CMake $cmake_takes, header $header_takes" ;;
    *)
      [ "$cmake_takes $header_takes" = "no no" ] || fail "$version: CMake $cmake_takes, header $header_takes"
      says "toml++ $version.0 in"
      grep -q 'toml++ 3.3 and 3.4 are served' "$work/error" || fail "$version: $(cat "$work/error")" ;;
  esac
done

# Warnings are errors if and only if TANREN_WERROR is set.
case="-Werror is TANREN_WERROR"
asked=no is=no
if grep -q '^TANREN_WERROR:[A-Z]*=ON$' "$build/CMakeCache.txt"; then asked=yes; fi
if grep -qe ' -Werror ' "$build/compile_commands.json"; then is=yes; fi
[ "$asked" = "$is" ] || fail "asked for: $asked, in the commands: $is"

rm -rf "$work"
echo "looked, asked, fetched and refused as told"

# Mutants name code by its text, which must still be there.
if PATH=$real_path command -v python3 > /dev/null; then
  PATH=$real_path python3 "$source/scripts/mutants" --check
fi
