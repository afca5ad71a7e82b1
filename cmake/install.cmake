# PREFIX/bin, lib and share as `make install`, the wheel and the tarball have them: programs find each other, the plug-in and the run files by
# where they lie. LibTorch is beside PREFIX (a wheel's place in site-packages), or found as front/launch/libtorch.h says.
set(beside "$ORIGIN/../..")
set_target_properties(lockstep PROPERTIES INSTALL_RPATH "")
set_target_properties(lockstep-worker PROPERTIES INSTALL_RPATH "${beside}/torch/lib")
install(TARGETS lockstep lockstep-worker RUNTIME DESTINATION bin COMPONENT programs)
if(LOCKSTEP_CUDA)
  set_target_properties(cuda_plugin PROPERTIES
    INSTALL_RPATH "${beside}/torch/lib:${beside}/nvidia/cu13/lib:${beside}/nvidia/cudnn/lib:${beside}/nvidia/nccl/lib")
  install(TARGETS cuda_plugin LIBRARY DESTINATION lib COMPONENT programs)
endif()
install(DIRECTORY "${CMAKE_SOURCE_DIR}/models" "${CMAKE_SOURCE_DIR}/examples" DESTINATION share/lockstep COMPONENT programs
        PATTERN __pycache__ EXCLUDE PATTERN build EXCLUDE)
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" "${third_party_texts}" DESTINATION share/doc/lockstep COMPONENT programs)

# What embedders need: find_package(lockstep) with -DCMAKE_PREFIX_PATH=PREFIX.
include(CMakePackageConfigHelpers)
set_target_properties(liblockstep PROPERTIES INSTALL_RPATH "")
install(TARGETS liblockstep EXPORT lockstep LIBRARY DESTINATION lib COMPONENT embed)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/lockstep" DESTINATION include COMPONENT embed)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstep-targets.cmake DESTINATION lib/cmake/lockstep COMPONENT embed)
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/lockstep-config.cmake.in" "${CMAKE_BINARY_DIR}/generated/lockstep-config.cmake"
                              INSTALL_DESTINATION lib/cmake/lockstep)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/generated/lockstep-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/generated/lockstep-config.cmake" "${CMAKE_BINARY_DIR}/generated/lockstep-config-version.cmake"
        DESTINATION lib/cmake/lockstep COMPONENT embed)

# Man pages and completions, as the installed program itself writes them.
install(CODE [[
  set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  file(MAKE_DIRECTORY "${prefix}/share/man/man1")
  execute_process(COMMAND "${prefix}/bin/lockstep" completion --man-pages "${prefix}/share/man/man1" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  foreach(pair "bash:bash-completion/completions/lockstep" "zsh:zsh/site-functions/_lockstep" "fish:fish/vendor_completions.d/lockstep.fish")
    string(REGEX MATCH "^([a-z]+):(.*)$" matched "${pair}")
    execute_process(COMMAND "${prefix}/bin/lockstep" completion "${CMAKE_MATCH_1}" OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE "${prefix}/share/${CMAKE_MATCH_2}" "${script}")
  endforeach()
]] COMPONENT programs)
