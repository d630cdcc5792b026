# What `cmake --install` installs: bin/tanren, include/tanren, the static libraries, the CMake
# package (find_package(tanren), target tanren::tanren), tanren_ray for Python and the shell
# completions.
# The package names no folder of the build machine: its user's CMake finds libtorch and the codecs
# with the same Libtorch.cmake and Codecs.cmake.
include(CMakePackageConfigHelpers)

get_property(tanren_libraries GLOBAL PROPERTY TANREN_LIBRARIES)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tanren)
install(TARGETS tanren_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS tanren ${tanren_libraries} EXPORT tanrenTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# All headers except those of tests and those that include the JSON library.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tanren DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "testing.h" EXCLUDE PATTERN "*_test_util.h" EXCLUDE
        PATTERN "tokenizer_files.h" EXCLUDE PATTERN "values_json.h" EXCLUDE
        PATTERN "json_text.h" EXCLUDE PATTERN "gloo_headers" EXCLUDE)
install(EXPORT tanrenTargets NAMESPACE tanren:: DESTINATION ${package_folder})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tanrenConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/tanrenConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tanrenConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tanrenConfig.cmake
              ${PROJECT_BINARY_DIR}/tanrenConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/Libtorch.cmake ${PROJECT_SOURCE_DIR}/cmake/Codecs.cmake
        DESTINATION ${package_folder})
install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/fetch-libtorch DESTINATION ${package_folder})

install(FILES ${PROJECT_SOURCE_DIR}/python/tanren_ray.py
        DESTINATION ${CMAKE_INSTALL_DATADIR}/tanren/python)

# The folders that each shell searches by default.
set(completions bash:bash-completion/completions/tanren zsh:zsh/site-functions/_tanren
                fish:fish/vendor_completions.d/tanren.fish)
foreach(completion IN LISTS completions)
  string(REPLACE ":" ";" completion "${completion}")
  list(GET completion 0 shell)
  list(GET completion 1 place)
  cmake_path(GET place PARENT_PATH folder)
  set(made "${PROJECT_BINARY_DIR}/completions/${place}")
  install(CODE "
    file(MAKE_DIRECTORY \"${PROJECT_BINARY_DIR}/completions/${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:tanren_cli>\" completion ${shell}
                    OUTPUT_FILE \"${made}\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${made} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
endforeach()
