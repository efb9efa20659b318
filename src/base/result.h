// Lane one of our three error lanes: the world failed (a bad file, a bad request, no memory for
// pages). A function that can fail that way returns Result<T>: a value, or an Error with a code and
// a message that names the file, field or line. Member names are those of std::expected, which is
// to replace this later. Programmer mistakes are CHECKs (check.h); exceptions of a library are
// caught where the library is called.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace pewter {

enum class ErrorCode {
  kInvalidArgument,    // the caller's value is wrong: flag, request field, prompt
  kNotFound,           // file, tensor, model or path that does not exist
  kCorruptData,        // a file says something impossible
  kUnsupported,        // understood, and not implemented
  kResourceExhausted,  // memory, pages, slots
  kCancelled,
  kUnavailable,  // shutting down, queue full
  kInternal,     // our fault, survivable
};

std::string_view error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // The same error, with the place it came from in front: "config.json: text_config: …".
  Error within(std::string_view context) const {
    return Error{code, std::string(context) + ": " + message};
  }
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & {
    CHECK(has_value(), "value() of an error: ", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(has_value(), "value() of an error: ", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(has_value(), "value() of an error: ", std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const {
    CHECK(!has_value(), "error() of a value");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT: implicit on purpose

  bool has_value() const { return !failed_; }
  explicit operator bool() const { return has_value(); }
  void value() const { CHECK(has_value(), "value() of an error: ", error_.message); }
  const Error& error() const {
    CHECK(failed_, "error() of a value");
    return error_;
  }

 private:
  Error error_;
  bool failed_ = false;
};

using Status = Result<void>;

}  // namespace pewter

#define PEWTER_CONCAT_INNER(a, b) a##b
#define PEWTER_CONCAT(a, b) PEWTER_CONCAT_INNER(a, b)

// Returns the error to the caller; goes on otherwise.
#define TRY(expression)                                       \
  do {                                                        \
    auto&& pewter_try_result = (expression);                  \
    if (!pewter_try_result) return pewter_try_result.error(); \
  } while (false)

// TRY_ASSIGN(const Foo foo, make_foo()): returns the error, or declares foo with the value.
#define TRY_ASSIGN(declaration, expression) \
  TRY_ASSIGN_INNER(PEWTER_CONCAT(pewter_result_, __LINE__), declaration, expression)
#define TRY_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                             \
  if (!result) return result.error();                     \
  declaration = std::move(result).value()
