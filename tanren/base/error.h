// Errors that end a run. One line each: `[room] what, with the values; what to do`.
// Expected outcomes (a skipped step, a retried microstep) are values, never exceptions.
#pragma once

#include <stdexcept>
#include <string>

namespace tanren {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user's input is wrong (config, data, checkpoint, folder): the command line exits with 2.
class InputError : public Error {
 public:
  using Error::Error;
};
class ConfigError : public InputError {
 public:
  using InputError::InputError;
};
// No plan of the run fits memory.limit.
class LimitError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};
class DataError : public InputError {
 public:
  using InputError::InputError;
};
class CheckpointError : public InputError {
 public:
  using InputError::InputError;
};

// The run itself failed (non-finite loss, lost peer, no memory): exit code 1.
class RunError : public Error {
 public:
  using Error::Error;
};
class CommError : public RunError {
 public:
  using RunError::RunError;
};
class MemoryError : public RunError {
 public:
  using RunError::RunError;
};
// Loss, gradients or weights are not finite.
class NonFiniteError : public RunError {
 public:
  using RunError::RunError;
};
// A file of the run cannot be written.
class DiskError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace tanren
