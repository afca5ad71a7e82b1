# Imported targets for LibTorch and CUDA as the torch wheel lays them out. find_package(Torch) would ask for a full CUDA toolkit.
file(GLOB site_packages "${LOCKSTEP_DEPS}/lib/python3*/site-packages")
list(GET site_packages 0 site_packages)
set(torch_root "${site_packages}/torch")
if(NOT EXISTS "${torch_root}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in ${LOCKSTEP_DEPS}. Run tools/setup.sh (or `make build`, which does).")
endif()
set(cuda_root "${site_packages}/nvidia/cu13")
set(nccl_root "${site_packages}/nvidia/nccl")
set(cudnn_root "${site_packages}/nvidia/cudnn")

add_library(torch_headers INTERFACE)
target_include_directories(torch_headers SYSTEM INTERFACE "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
target_compile_definitions(torch_headers INTERFACE AT_PER_OPERATOR_HEADERS USE_C10D_GLOO USE_DISTRIBUTED)

add_library(torch_cpu INTERFACE)
target_link_libraries(torch_cpu INTERFACE torch_headers "${torch_root}/lib/libtorch_cpu.so" "${torch_root}/lib/libc10.so")
target_link_options(torch_cpu INTERFACE -Wl,--allow-shlib-undefined)
# Built programs find LibTorch through the library path that `lockstep` sets; the run path serves tests started by hand, and stays behind
# when programs are installed.
set(CMAKE_BUILD_RPATH "${torch_root}/lib" "${cuda_root}/lib")

add_library(torch_cuda INTERFACE)
target_link_libraries(torch_cuda INTERFACE torch_cpu "${torch_root}/lib/libc10_cuda.so" "${torch_root}/lib/libtorch_cuda.so")
target_include_directories(torch_cuda SYSTEM INTERFACE "${cuda_root}/include")
target_link_options(torch_cuda INTERFACE -Wl,--no-as-needed)
