#include "engine/drafter.h"

#include "base/in_range.h"
#include "engine/dflash_drafter.h"
#include "engine/mtp_drafter.h"
#include "engine/suffix_index.h"

namespace pewter {

Status DraftOptions::validate() const {
  TRY(in_range("num_speculative_tokens", tokens, 0, kMaxDrafts));
  return in_range("prompt_lookup_min", shortest_match, 1, SuffixIndex::kLongestMatch);
}

Result<std::unique_ptr<Drafter>> make_drafter(const DraftOptions& options,
                                              std::shared_ptr<const DflashModel> dflash,
                                              ModelRunner& runner, Device& device, Ops& ops) {
  if (!options.enabled()) return std::unique_ptr<Drafter>();
  CHECK(options.method != DraftMethod::kAuto, "a method has to be chosen first");
  if (options.method == DraftMethod::kMtp) return MtpDrafter::make(runner, device, ops);
  if (options.method == DraftMethod::kDflash)
    return DflashDrafter::make(std::move(dflash), runner, device, ops);
  return std::unique_ptr<Drafter>();
}

}  // namespace pewter
