# The CUDA plug-in build/lib/liblockstep_cuda.so: kernels compiled by the nvcc of the wheels, device queries, and NCCL.
# The worker links none of it and loads it where there is a GPU. LOCKSTEP_CUDA=0 leaves it out.
if(NOT LOCKSTEP_CUDA)
  add_custom_target(cuda_plugin)
  return()
endif()

set(nvcc "${cuda_root}/bin/nvcc")
if(NOT EXISTS "${nvcc}")
  message(FATAL_ERROR "The CUDA compiler is not at ${nvcc}. Run tools/setup.sh, or build without CUDA: make CUDA=0.")
endif()
# Intermediate code of the newest serves what comes: the driver compiles it.
set(gencodes)
foreach(arch ${LOCKSTEP_CUDA_ARCHITECTURES})
  list(APPEND gencodes -gencode "arch=compute_${arch},code=sm_${arch}")
endforeach()
list(GET LOCKSTEP_CUDA_ARCHITECTURES -1 newest)
list(APPEND gencodes -gencode "arch=compute_${newest},code=compute_${newest}")

set(cuda_launcher)
if(LOCKSTEP_CCACHE)
  set(cuda_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LOCKSTEP_CCACHE})
endif()
# cuDNN's plans are described through its C++ headers, which the wheel puts beside all others.
set(LOCKSTEP_CUDNN_FRONTEND "${site_packages}/include" CACHE PATH "Where cudnn_frontend.h is")
if(NOT EXISTS "${LOCKSTEP_CUDNN_FRONTEND}/cudnn_frontend.h")
  message(FATAL_ERROR "cudnn_frontend.h is not in ${LOCKSTEP_CUDNN_FRONTEND}. Run tools/setup.sh, or build without CUDA: make CUDA=0.")
endif()
set(nvcc_flags -std=c++20 -O3 --expt-relaxed-constexpr -I${CMAKE_SOURCE_DIR}/src -Xcompiler=-fPIC,-fvisibility=hidden,-Wall)
# What lies in a folder hopper/ uses what only Hopper has; its code runs on no other family.
set(hopper_gencode -gencode "arch=compute_90a,code=sm_90a")
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/rank/*.cu")
set(cuda_objects)
foreach(source ${cuda_sources})
  file(RELATIVE_PATH relative "${CMAKE_SOURCE_DIR}/src" "${source}")
  string(REPLACE "/" "_" object "${relative}.o")
  set(object "${CMAKE_BINARY_DIR}/cuda/${object}")
  set(targets ${gencodes})
  if(source MATCHES "/hopper/[a-z0-9_]+\\.cu$")
    set(targets ${hopper_gencode})
  endif()
  add_custom_command(
    OUTPUT "${object}"
    COMMAND ${cuda_launcher} "${nvcc}" ${nvcc_flags} ${targets} -MMD -MF "${object}.d" -MT "${object}" -c "${source}" -o "${object}"
    DEPENDS "${source}"
    DEPFILE "${object}.d"
    COMMENT "Building CUDA object ${relative}"
    VERBATIM)
  list(APPEND cuda_objects "${object}")
endforeach()
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/cuda")

file(GLOB plugin_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/rank/*/plugin/*.cpp")
if(NOT LOCKSTEP_NCCL)
  list(REMOVE_ITEM plugin_sources "${CMAKE_SOURCE_DIR}/src/rank/comm/plugin/nccl.cpp")
endif()
# cuDNN's front end is a tree of templates that makes plans, once a shape: half the time to compile for what nobody feels.
set_source_files_properties("${CMAKE_SOURCE_DIR}/src/rank/kernels/plugin/ragged.cpp" PROPERTIES COMPILE_OPTIONS -O1)
add_library(cuda_plugin SHARED ${plugin_sources} "${CMAKE_SOURCE_DIR}/src/rank/kernels/matmul_cache.cpp"
            "${CMAKE_SOURCE_DIR}/src/base/file/cache_folder.cpp" ${cuda_objects})
set_target_properties(cuda_plugin PROPERTIES OUTPUT_NAME lockstep_cuda CXX_VISIBILITY_PRESET hidden)
target_include_directories(cuda_plugin PRIVATE "${CMAKE_SOURCE_DIR}/src")
target_include_directories(cuda_plugin SYSTEM PRIVATE "${nccl_root}/include" "${cudnn_root}/include" "${LOCKSTEP_CUDNN_FRONTEND}")
target_compile_definitions(cuda_plugin PRIVATE $<$<BOOL:${LOCKSTEP_NCCL}>:USE_C10D_NCCL>)
target_link_libraries(cuda_plugin PRIVATE torch_fmt torch_cuda "${cuda_root}/lib/libcudart.so.13" "${cuda_root}/lib/libcublasLt.so.13"
                      "${cudnn_root}/lib/libcudnn.so.9")
if(LOCKSTEP_NCCL)
  target_link_libraries(cuda_plugin PRIVATE "${nccl_root}/lib/libnccl.so.2")
endif()
