// Marks a function that runs on a CPU and on a GPU.
#pragma once

#ifdef __CUDACC__
#define LOCKSTEP_BOTH __host__ __device__
#else
#define LOCKSTEP_BOTH
#endif
