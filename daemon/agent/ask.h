// A question from another thread to the loop's.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "daemon/base/loop.h"

namespace tutti {

// Runs `question` on the loop's thread, and waits until it, or what it starts, has called `reply`;
// nothing where that takes longer than `patience`. A later reply is dropped. Never on the loop's
// own thread.
template <class Answer, class Question>
std::optional<Answer> ask(Loop& loop, Millis patience, Question question) {
  struct Desk {
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<Answer> answer;
  };
  const auto desk = std::make_shared<Desk>();
  const std::function<void(Answer)> reply = [desk](Answer answer) {
    const std::lock_guard lock(desk->mutex);
    desk->answer = std::move(answer);
    desk->answered.notify_one();
  };
  loop.post([question = std::move(question), reply] { question(reply); });
  std::unique_lock lock(desk->mutex);
  desk->answered.wait_for(lock, patience, [&] { return desk->answer.has_value(); });
  return desk->answer;
}

}  // namespace tutti
