#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace pewter {

void Scheduler::add(const Sequence& sequence) {
  CHECK(sequence.id >= 0 && sequence.prompt > 0, "sequence ", sequence.id, " with a prompt of ",
        sequence.prompt);
  waiting_.push_back(sequence);
}

std::optional<int64_t> Scheduler::start(int64_t free_pages, int64_t free_slots) {
  if (waiting_.empty() || free_slots < 1 || waiting_.front().pages > free_pages)
    return std::nullopt;
  const Sequence& first = waiting_.front();
  running_.push_back({.id = first.id, .prompt = first.prompt});
  waiting_.pop_front();
  return running_.back().id;
}

const StepPlan& Scheduler::plan() {
  plan_.prefill = -1;
  plan_.decode.clear();
  Running* reading = nullptr;  // the first whose prompt is not read yet
  for (Running& sequence : running_) {
    if (sequence.done == sequence.prompt)
      plan_.decode.push_back(sequence.id);
    else if (reading == nullptr)
      reading = &sequence;
  }
  if (reading == nullptr || (prefilled_last_ && !plan_.decode.empty())) {
    prefilled_last_ = false;
    return plan_;
  }
  plan_.decode.clear();
  plan_.prefill = reading->id;
  plan_.begin = reading->done;
  plan_.end = reading->done = std::min(reading->done + chunk_rows_, reading->prompt);
  prefilled_last_ = true;
  return plan_;
}

bool Scheduler::only_decodes() const {
  return std::ranges::all_of(
      running_, [](const Running& sequence) { return sequence.done == sequence.prompt; });
}

void Scheduler::remove(int64_t id) {
  std::erase_if(waiting_, [id](const Sequence& sequence) { return sequence.id == id; });
  std::erase_if(running_, [id](const Running& sequence) { return sequence.id == id; });
}

}  // namespace pewter
