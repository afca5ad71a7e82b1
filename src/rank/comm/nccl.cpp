// Finds the NCCL backend in the CUDA plug-in, or says what is missing.
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/error.h"
#include "rank/comm/nccl_entry.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {

bool has_nccl() { return ::dlsym(RTLD_DEFAULT, make_nccl_symbol) != nullptr; }

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const Place& place, Seat seat, double timeout_s,
                                            at::Device device) {
  auto* make = reinterpret_cast<MakeNccl*>(::dlsym(RTLD_DEFAULT, make_nccl_symbol));
  if (make == nullptr) {
    throw base::machine_error(
        "comm", "this build has no NCCL (it was made with NCCL=0 or CUDA=0). Rebuild with `make build`, or use --sync-backend cpu.");
  }
  c10::intrusive_ptr<c10d::Backend> backend;
  std::string failure;
  if (!make(backend, store, seat.rank, seat.size, timeout_s, device.index(), failure)) {
    throw base::machine_error("comm",
                              "NCCL cannot connect rank {} on {}: {}. NCCL_DEBUG=INFO shows more; --sync-backend cpu goes without NCCL.",
                              place.rank, device.str(), failure);
  }
  return backend;
}

}  // namespace lockstep::comm
