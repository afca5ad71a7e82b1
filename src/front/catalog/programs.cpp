// What goes wrong before anything trains: programs and libraries that are missing or of another version.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_programs() {
  return {
      {.code = "LS-101",
       .title = "lockstep-worker is missing",
       .symptom = "Every verb that trains or generates ends at once: the worker is missing or cannot be run.",
       .cause =
           "`lockstep` starts one `lockstep-worker` for each GPU, and looks for it beside itself. It was not built, not copied along, or "
           "LOCKSTEP_WORKER names another file.",
       .fix = "run `make build`; copy lockstep and lockstep-worker together, or unset LOCKSTEP_WORKER",
       .patterns = {"is missing or cannot be run. it lies beside `lockstep`", "cannot start *lockstep-worker"}},
      {.code = "LS-102",
       .title = "LibTorch is not found",
       .symptom = "'LibTorch 2.11.0 is not found', or Python's 'No module named torch'.",
       .cause = "Workers run with the LibTorch of a torch wheel. It is looked for in LOCKSTEP_LIBTORCH, then in .deps/ beside or above the "
                "program, then in the python3 on PATH.",
       .fix = "run tools/setup.sh in the checkout, or `pip install torch==2.11.0`, or set LOCKSTEP_LIBTORCH to a torch folder",
       .patterns = {"libtorch * is not found", "holds no lib/libtorch_cpu.so", "no module named 'torch'", "no module named torch"}},
      {.code = "LS-103",
       .title = "LibTorch is of another version",
       .symptom = "'LibTorch in ... is version ...; lockstep was built for ...'.",
       .cause = "The worker was compiled against one version of LibTorch. Another one may load, and then crash or compute something else.",
       .fix = "install torch==2.11.0 where it was found, or point LOCKSTEP_LIBTORCH at a folder that has it",
       .patterns = {"is version *; lockstep was built for", "detected that pytorch and * were compiled with different cuda",
                    "undefined symbol: _zn3c10", "undefined symbol: _zn2at", "undefined symbol: _zn5torch"}},
      {.code = "LS-104",
       .title = "A shared library is missing or does not fit",
       .symptom = "'error while loading shared libraries', 'undefined symbol', 'version GLIBC_2.38 not found'.",
       .cause = "The worker was built on another system, or its LibTorch lacks the NVIDIA packages that belong to it.",
       .fix = "the worker's libraries do not fit this machine: `lockstep devices` shows which LibTorch is used; set LOCKSTEP_LIBTORCH, or "
              "build here with `make build`",
       .patterns = {"error while loading shared libraries", "undefined symbol", "version `glibc", "cannot open shared object file",
                    "glibcxx_* not found"}},
      {.code = "LS-105",
       .title = "The CUDA plug-in is missing or does not load",
       .symptom = "GPUs are there, and training on them ends with 'the CUDA plug-in ...'.",
       .cause =
           "Kernels for GPUs are in lib/liblockstep_cuda.so beside bin/. The build was made with CUDA=0, the file was not copied along, "
           "it is of another build, or LibTorch is the CPU version.",
       .fix = "run `make build` (without CUDA=0), keep bin/ and lib/ together, and use the CUDA build of torch (2.11.0+cu130)",
       .patterns = {"the cuda plug-in", "this build has no cuda part", "torch not compiled with cuda enabled",
                    "was compiled without gpu support", "not compiled with cuda"}},
      {.code = "LS-106",
       .title = "This build has no NCCL",
       .symptom = "'this build has no NCCL', 'Distributed package doesn't have NCCL built in'.",
       .cause = "The program was built with NCCL=0 or CUDA=0, or PyTorch is a CPU build.",
       .fix = "build again with `make build`, or use --sync-backend cpu, which goes through host memory",
       .patterns = {"this build has no nccl", "distributed package doesn't have nccl", "libnccl.so"}},
      {.code = "LS-108",
       .title = "The processor lacks an instruction",
       .symptom = "'Illegal instruction (core dumped)', exit code 132.",
       .cause =
           "A library was compiled for a newer processor, or an emulator or virtual machine hides instructions that the processor has.",
       .fix = "in a virtual machine pass the host's processor through; otherwise build here with `make build`",
       .patterns = {"illegal instruction*(core dumped)", "sigill", "exitcode  : -4 (", "an instruction this processor does not have"}},
  };
}

}  // namespace lockstep::catalog
