// Stands in for the header of this name, which libtorch does not ship: what c10d's Gloo class and
// gloo.cpp need, and no more. Gloo itself is inside libtorch.
#pragma once

#include <exception>
#include <string>

namespace gloo::transport {

class Pair {
 public:
  virtual ~Pair();
};

namespace tcp {

class Pair : public ::gloo::transport::Pair {
 public:
  ~Pair() override;
  // Protected in Gloo: ends whatever waits on the connection, and the connection, with this
  // message.
  std::exception_ptr signalExceptionExternal(const std::string& message);
};

}  // namespace tcp

}  // namespace gloo::transport
