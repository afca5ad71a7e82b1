# The CPU loops, src/rank/kernels/cpu, compiled once per instruction set; tables.cpp picks at run time. They are free of LibTorch.
set(kernels_dir "${CMAKE_SOURCE_DIR}/src/rank/kernels")
get_target_property(kernel_sources lockstep_kernels SOURCES)
file(GLOB kernel_loops CONFIGURE_DEPENDS "${kernels_dir}/cpu/*.cpp")
if(NOT LOCKSTEP_CUDA)
  list(REMOVE_ITEM kernel_sources "${kernels_dir}/plugin.cpp")
  list(APPEND kernel_sources "${kernels_dir}/stub/no_cuda.cpp")
endif()

set(isa_plain "")
set(isa_avx2 -mavx2 -mfma -mf16c)
set(isa_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512)
foreach(isa plain avx2 avx512)
  add_library(kernel_loops_${isa} OBJECT ${kernel_loops})
  target_include_directories(kernel_loops_${isa} PRIVATE "${CMAKE_SOURCE_DIR}/src")
  target_compile_definitions(kernel_loops_${isa} PRIVATE LOCKSTEP_ISA=${isa})
  # No trapping or errno: nothing here reads them, and both keep loops scalar. Sums are reordered only where a pragma says so.
  target_compile_options(kernel_loops_${isa} PRIVATE -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math -fvisibility=hidden ${isa_${isa}})
  # A fused multiply-add would round once where bitsandbytes rounds twice.
  set_source_files_properties("${kernels_dir}/cpu/nf4.cpp" TARGET_DIRECTORY kernel_loops_${isa} PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
  list(APPEND kernel_sources $<TARGET_OBJECTS:kernel_loops_${isa}>)
endforeach()
set_property(TARGET lockstep_kernels PROPERTY SOURCES ${kernel_sources})

# at::parallel_for is a template over OpenMP: it needs the flag where it is used, and LibTorch's own libgomp at the link.
set_source_files_properties("${kernels_dir}/parallel.cpp" TARGET_DIRECTORY lockstep_kernels
                            PROPERTIES COMPILE_OPTIONS -fopenmp SKIP_PRECOMPILE_HEADERS ON)
target_link_libraries(lockstep_kernels PUBLIC "${torch_root}/lib/libgomp.so.1")
