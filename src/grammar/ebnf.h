// Grammars as users write them, in the notation of GBNF:
//
//   root  ::= item ("," item)*        # a comment
//   item  ::= "a\n" | [a-z0-9_]+ | . | sub{2,4}
//   sub   ::= [^"\\] | "\x41" | "\u00e9"
//
// A rule's name is letters, digits, - and _; a rule ends where the next one begins. Repeats: * + ?
// {n} {n,} {n,m}. `.` is any character but a line break; text is UTF-8. `root` is where a text
// begins.
#pragma once

#include "base/result.h"
#include "grammar/expression.h"

namespace pewter::grammar {

// Adds its rules to a grammar; the expression of root. Errors: kInvalidArgument, with the line.
Result<Expr> add_ebnf(std::string_view text, Grammar& grammar);

}  // namespace pewter::grammar
