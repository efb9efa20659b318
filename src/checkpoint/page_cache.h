// Whether a file lies in the page cache already. Then plain reads are memory copies, and direct
// ones would go to the disk for nothing; otherwise direct reads are faster and push nothing else
// out.
#pragma once

#include "base/file.h"

namespace pewter {

// Asks for a few pages spread over the file without starting any I/O. False when it cannot tell.
bool is_cached(const File& file);

}  // namespace pewter
