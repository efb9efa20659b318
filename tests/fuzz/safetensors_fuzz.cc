// A safetensors header from a stranger: whatever the bytes, parsing ends, and what it returns lies
// inside the file.
#include "base/check.h"
#include "checkpoint/safetensors_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first two bytes choose how much data the header is said to describe.
  if (size < 2) return 0;
  const int64_t data_bytes = data[0] + 256 * data[1];
  const std::string_view header(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto begin = static_cast<int64_t>(8 + header.size());
  pewter::Findings findings;
  const auto tensors = pewter::parse_safetensors_header(header, begin, begin + data_bytes,
                                                        "fuzz.safetensors", findings);
  int64_t covered = 0;
  for (const pewter::TensorInfo& tensor : tensors) {
    CHECK(begin <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= begin + data_bytes,
          tensor.name);
    covered += tensor.bytes();
  }
  if (findings.has_faults())
    CHECK(!findings.to_error("fuzz").message.empty(), "no message");
  else
    CHECK(covered == data_bytes, "accepted, and ", covered, " of ", data_bytes, " bytes covered");
  return 0;
}
