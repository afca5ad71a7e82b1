// What kernels have of the process while somebody computes: LibTorch's mode, and on CUDA the plans that they keep between calls.
#pragma once

#include <c10/core/Device.h>

namespace lockstep::kernels {

namespace cuda {
struct Session;
}

// A run has one, a model that writes, a benchmark; kernels of a CUDA device are called while there is one. When it ends, what was before
// comes back, and plans and libraries' handles are freed. Of several at once the newest counts. It begins with no memory of those before:
// what the allocator kept goes back to the device, and the peak is counted from here.
class Session {
 public:
  Session(at::Device device, bool deterministic);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  friend class OpenSessions;
  cuda::Session* plans_ = nullptr;  // the plug-in's
  bool deterministic_;
};

}  // namespace lockstep::kernels
