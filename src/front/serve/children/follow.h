// A command whose lines a page follows as they come, such as `lockstep check`: one at a time.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "front/http/stream.h"

namespace lockstep::serve {

// Any thread.
class Follow {
 public:
  Follow() = default;
  ~Follow();
  Follow(const Follow&) = delete;
  Follow& operator=(const Follow&) = delete;

  // Events "line" (JSON that it printed) and at last "end" ({"exit_code", "complaints"}). It is ended where nobody listens any more, or
  // after timeout_s. UserError while another one is at work.
  std::shared_ptr<http::Stream> begin(const std::vector<std::string>& arguments, double timeout_s);

 private:
  void follow(const std::vector<std::string>& arguments, double timeout_s, http::Stream& stream) const;

  std::atomic<bool> works_ = false, closing_ = false;
  base::Mutex mutex_;
  std::thread thread_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::serve
