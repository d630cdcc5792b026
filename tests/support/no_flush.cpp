// fsync for tests, which need not survive a power loss. It does not wait for the disk, and fails
// for the same files as the system's. Linked into test programs, and preloaded into commands that
// are forks (forked.h). All other programs that tests start flush. Weak, because crash_points.cpp
// has its own.
#include <sys/stat.h>

#include <cerrno>

extern "C" __attribute__((weak, visibility("default"))) int fsync(int descriptor) {
  struct stat file = {};
  if (::fstat(descriptor, &file) != 0) return -1;
  if (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode)) return 0;
  errno = EINVAL;
  return -1;
}
