// The one function of the CUDA plug-in that comm/ calls.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lockstep::comm {

inline constexpr const char* make_nccl_symbol = "lockstep_make_nccl";
// False, and why: it failed.
using MakeNccl = bool(c10::intrusive_ptr<c10d::Backend>& backend, const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                      double timeout_s, int device_index, std::string& why);

}  // namespace lockstep::comm
