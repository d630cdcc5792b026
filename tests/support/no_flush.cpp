// fsync for tests, which no loss of power ends: it refuses what the system's refuses and does not
// wait for the disk. Linked into test programs, and preloaded into commands that are forks
// (forked.h); all other programs that tests start flush. Weak: crash_points.cpp has its own.
#include <sys/stat.h>

#include <cerrno>

extern "C" __attribute__((weak, visibility("default"))) int fsync(int descriptor) {
  struct stat file = {};
  if (::fstat(descriptor, &file) != 0) return -1;
  if (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode)) return 0;
  errno = EINVAL;
  return -1;
}
