// In the CUDA plug-in: what kernels keep between calls.
#pragma once

#include <memory>

namespace lockstep::kernels::cuda {

class Matmuls;      // matmul.cpp
class RaggedPlans;  // ragged.cpp
std::shared_ptr<Matmuls> make_matmuls();
std::shared_ptr<RaggedPlans> make_ragged_plans();

struct Session {
  std::shared_ptr<Matmuls> matmuls = make_matmuls();
  std::shared_ptr<RaggedPlans> ragged = make_ragged_plans();
};

// The one in use.
Session& session();

Session* open_session(int device);
void use_session(Session* session);
void close_session(Session* session);

}  // namespace lockstep::kernels::cuda
