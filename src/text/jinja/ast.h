// A parsed template: a tree of statements and expressions, built once by the parser and never
// changed, so that any number of threads may render it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/compare.h"
#include "text/jinja/value.h"

namespace pewter::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Block = std::vector<std::unique_ptr<const Statement>>;

// Arguments as written: f(1, *more, key=2, **rest).
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, double_star;  // or null
};

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

struct Expression {
  enum class Kind {
    kConstant,     // constant
    kName,         // name
    kList,         // operands
    kTuple,        // operands
    kDict,         // operands: key, value, key, value …
    kNot,          // operand
    kNegate,       // operand
    kPlus,         // operand
    kAnd,          // two operands
    kOr,           // two operands
    kBinary,       // two operands, binary_op
    kConcat,       // operands, joined as strings
    kCompare,      // operands and one compare_op between each two
    kConditional,  // condition, value if true, value if false (or null)
    kAttribute,    // object, name
    kItem,         // object, index
    kSlice,        // object, start, stop, step (each but the object may be null)
    kCall,         // callee, arguments
    kFilter,       // input (null in a filter block), name, arguments
    kTest          // operand, name, arguments
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // of the tree below; the parser bounds it, so recursion over it is safe
  std::string name;
  Value constant;
  BinaryOp binary_op = BinaryOp::kAdd;
  std::vector<CompareOp> compare_ops;
  std::vector<ExpressionPtr> operands;
  CallArguments arguments;
};

// Where {% set %} and {% for %} put a value.
struct Target {
  enum class Kind { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  std::string name;
  std::string attribute;      // of the namespace called name
  std::vector<Target> parts;  // of a tuple
};

// Formal parameters of a macro or a call block; the defaults belong to the last ones.
struct Parameters {
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Statement {
  enum class Kind {
    kText,         // text
    kOutput,       // expressions, printed in order
    kIf,           // branches, tried in order
    kFor,          // target, expressions: what to iterate, condition (or null); recursive; body,
                   // otherwise
    kSet,          // target, expressions[0]
    kSetBlock,     // target, expressions[0]: filter (or null); body
    kMacro,        // name, parameters, body
    kCallBlock,    // expressions[0]: a call; parameters, body
    kFilterBlock,  // expressions[0]: filter; body
    kWith,         // assignments, body
    kBreak,
    kContinue
  };
  struct Branch {
    ExpressionPtr condition;  // null for else
    Block body;
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string name;
  Text text;
  Target target;
  std::vector<ExpressionPtr> expressions;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Parameters parameters;
  bool recursive = false;
  Block body, otherwise;
};

}  // namespace pewter::jinja
