// The one function of the CUDA plug-in that comm/ calls.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lockstep::comm {

inline constexpr const char* make_nccl_symbol = "lockstep_make_nccl";
// Returns null, or why it failed (valid until the next call).
using MakeNccl = const char*(c10::intrusive_ptr<c10d::Backend>* backend, const c10::intrusive_ptr<c10d::Store>* store, int rank, int size,
                             double timeout_s, int device_index);

}  // namespace lockstep::comm
