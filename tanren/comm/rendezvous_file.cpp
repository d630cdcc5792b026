#include "tanren/comm/rendezvous_file.h"

#include "tanren/comm/run_detached.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tanren {

namespace {

// c10d's destructor writes into the file: it waits for a lock without end, and ends the process if
// the file cannot be opened, for example because its folder is being removed. It does nothing if
// the file does not exist, so this class clears the path; leave() does the destructor's work.
class QuietFileStore : public c10d::FileStore {
 public:
  using FileStore::FileStore;
  ~QuietFileStore() override { path_.clear(); }

  void leave() {
    if (!std::filesystem::exists(path_)) return;
    addHelper(cleanupKey_, 1);
    if (addHelper(refCountKey_, -1) > 0) return;
    // Every rank that came has now left. The file is removed only if those were all ranks.
    std::error_code ignored;
    if (addHelper(cleanupKey_, 0) >= numWorkers_) std::filesystem::remove(path_, ignored);
  }
};

class RendezvousFile : public c10d::PrefixStore {
 public:
  RendezvousFile(const std::string& prefix, c10::intrusive_ptr<QuietFileStore> file)
      : PrefixStore(prefix, file), file_(std::move(file)) {}

  ~RendezvousFile() override {
    try {
      run_detached([file = std::move(file_)] {
        file->leave();
        return true;
      }).wait_for(std::chrono::seconds(3));
    } catch (const std::exception&) {  // no thread could start: the file stays
    }
  }

 private:
  c10::intrusive_ptr<QuietFileStore> file_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> open_rendezvous_file(const std::string& path, int size,
                                                     const std::string& prefix,
                                                     std::chrono::milliseconds timeout) {
  auto file = c10::make_intrusive<QuietFileStore>(path, size);
  file->setTimeout(timeout);
  return c10::make_intrusive<RendezvousFile>(prefix, std::move(file));
}

}  // namespace tanren
