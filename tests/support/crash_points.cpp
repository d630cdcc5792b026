// Replaces the calls of the C library that change what a folder holds, so that a test can end a
// process at any one of them. Preloaded, or linked into a test. Controlled by the environment:
//   POINTS_COUNT=FILE       every call appends a letter to FILE
//   POINTS_AT=N             before the Nth call (from 1) …
//   POINTS_SIGNAL=S         … the process gets signal S (default 9), twice if it survives the first
//   POINTS_NO_EXCHANGE=1    renameat2 cannot exchange two names, as on NFS
//   POINTS_NO_NOREPLACE=1   renameat2 cannot keep a target, as on old network file systems
//   POINTS_NO_LINK=1        link fails, as on FAT
//   POINTS_FLOCK_ERRNO=E    flock fails with E
// fsync is such a call; it does not wait for the disk (no_flush.cpp).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<long> num_calls{0};

long number_of(const char* variable) {
  const char* text = ::getenv(variable);
  return text == nullptr ? 0 : std::atol(text);
}

void point(char letter) {
  const int before = errno;
  const long call = num_calls.fetch_add(1) + 1;
  if (const char* file = ::getenv("POINTS_COUNT")) {
    const long out = ::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::syscall(SYS_write, out, &letter, 1);
    ::syscall(SYS_close, out);
  }
  if (call == number_of("POINTS_AT")) {
    const long asked = number_of("POINTS_SIGNAL");
    const int signal = asked == 0 ? SIGKILL : static_cast<int>(asked);
    ::kill(::getpid(), signal);
    ::kill(::getpid(), signal);
  }
  errno = before;
}

int result(long code) { return static_cast<int>(code); }  // syscall() sets errno

}  // namespace

#define TANREN_POINT extern "C" __attribute__((visibility("default")))

// Restarts the count of calls; for a test that links this file in.
TANREN_POINT void restart_points() { num_calls.store(0); }

TANREN_POINT int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_CREAT) != 0) point('o');
  return result(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

TANREN_POINT int rename(const char* from, const char* to) noexcept {
  point('r');
  return result(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

TANREN_POINT int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                           unsigned int flags) noexcept {
  point('x');
  const bool lacks = (flags == RENAME_EXCHANGE && ::getenv("POINTS_NO_EXCHANGE") != nullptr) ||
                     (flags == RENAME_NOREPLACE && ::getenv("POINTS_NO_NOREPLACE") != nullptr);
  if (lacks) {
    errno = EINVAL;
    return -1;
  }
  return result(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

TANREN_POINT int mkdir(const char* path, mode_t mode) noexcept {
  point('m');
  return result(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

TANREN_POINT int link(const char* from, const char* to) noexcept {
  point('l');
  if (::getenv("POINTS_NO_LINK") != nullptr) {
    errno = EPERM;
    return -1;
  }
  return result(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

TANREN_POINT int symlink(const char* target, const char* path) noexcept {
  point('s');
  return result(::syscall(SYS_symlinkat, target, AT_FDCWD, path));
}

TANREN_POINT int unlink(const char* path) noexcept {
  point('u');
  return result(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

TANREN_POINT int unlinkat(int folder, const char* path, int flags) noexcept {
  point('u');
  return result(::syscall(SYS_unlinkat, folder, path, flags));
}

TANREN_POINT int fsync(int) {
  point('f');
  return 0;
}

TANREN_POINT int ftruncate(int descriptor, off_t size) noexcept {
  point('t');
  return result(::syscall(SYS_ftruncate, descriptor, size));
}

TANREN_POINT int flock(int descriptor, int operation) noexcept {
  if (const long error = number_of("POINTS_FLOCK_ERRNO")) {
    errno = static_cast<int>(error);
    return -1;
  }
  return result(::syscall(SYS_flock, descriptor, operation));
}
