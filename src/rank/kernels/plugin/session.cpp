// In the CUDA plug-in: opens and closes sessions, and knows which is in use.
#include "rank/kernels/plugin/session.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <stdexcept>

namespace lockstep::kernels::cuda {

namespace {

std::atomic<Session*>& in_use() {
  static std::atomic<Session*> session = nullptr;
  return session;
}

}  // namespace

Session& session() {
  Session* session = in_use().load(std::memory_order_acquire);
  if (session == nullptr) throw std::logic_error("kernels of a CUDA device are called while there is a kernels::Session");
  return *session;
}

Session* open_session(int device) {
  auto opened = std::make_unique<Session>();
  if (c10::cuda::CUDACachingAllocator::get()->initialized()) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
  }
  return opened.release();
}

void use_session(Session* session) { in_use().store(session, std::memory_order_release); }

void close_session(Session* session) { const std::unique_ptr<Session> closed(session); }

}  // namespace lockstep::kernels::cuda
