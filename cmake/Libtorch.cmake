# Finds libtorch and defines the target `libtorch` (headers, libtorch_cpu, libc10, flags). Used by
# tanren's own build, and installed with the package, beside fetch-libtorch.
#
# Order: -DTANREN_LIBTORCH=<folder that holds lib/ and include/, or its parent>, then
# CMAKE_PREFIX_PATH, then a `torch` of a tested version that python3 can import, then the pinned
# wheels, which are fetched once into the user cache (scripts/fetch-libtorch).
# find_package(Torch) is not used: for a CUDA wheel it requires a CUDA toolkit.

set(TANREN_LIBTORCH "" CACHE PATH "Folder of a libtorch 2.11 (the `torch` folder of a wheel)")
set(TANREN_LIBTORCH_TESTED "2.11.0") # the tested range: exactly the pinned version

function(_tanren_libtorch_accept folder result)
  set(${result} "" PARENT_SCOPE)
  foreach(candidate IN ITEMS "${folder}" "${folder}/torch")
    set(header "${candidate}/include/torch/headeronly/version.h")
    if(EXISTS "${candidate}/lib/libtorch_cpu.so" AND EXISTS "${header}")
      file(STRINGS "${header}" numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(TRANSFORM numbers REPLACE ".* ([0-9]+)$" "\\1")
      list(JOIN numbers "." version)
      if(version IN_LIST TANREN_LIBTORCH_TESTED)
        set(${result} "${candidate}" PARENT_SCOPE)
        return()
      endif()
      message(STATUS "libtorch ${version} in ${candidate} passed over: "
                     "tested is ${TANREN_LIBTORCH_TESTED}")
    endif()
  endforeach()
endfunction()

set(torch_root "")
if(TANREN_LIBTORCH)
  _tanren_libtorch_accept("${TANREN_LIBTORCH}" torch_root)
  if(NOT torch_root)
    message(FATAL_ERROR "TANREN_LIBTORCH=${TANREN_LIBTORCH} holds no libtorch "
                        "${TANREN_LIBTORCH_TESTED}; name the `torch` folder of such a wheel")
  endif()
endif()
foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
  if(NOT torch_root)
    _tanren_libtorch_accept("${prefix}" torch_root)
  endif()
endforeach()
if(NOT torch_root)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(from_python)
    _tanren_libtorch_accept("${from_python}" torch_root)
  endif()
endif()
if(NOT torch_root)
  find_program(TANREN_FETCH_LIBTORCH fetch-libtorch NO_DEFAULT_PATH NO_CACHE REQUIRED
               PATHS "${CMAKE_CURRENT_LIST_DIR}" "${CMAKE_CURRENT_LIST_DIR}/../scripts")
  execute_process(
    COMMAND ${TANREN_FETCH_LIBTORCH}
    OUTPUT_VARIABLE fetched OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "libtorch could not be fetched; pass -DTANREN_LIBTORCH=<folder>")
  endif()
  _tanren_libtorch_accept("${fetched}" torch_root)
endif()
if(NOT torch_root)
  message(FATAL_ERROR "no libtorch ${TANREN_LIBTORCH_TESTED} found")
endif()
message(STATUS "libtorch: ${torch_root}")

set(torch_lib "${torch_root}/lib")
set(TANREN_FMT_INCLUDE "${torch_root}/include")
get_filename_component(torch_site "${torch_root}/.." ABSOLUTE)
add_library(libtorch INTERFACE IMPORTED) # imported, so that exported libraries may link it
target_include_directories(libtorch SYSTEM INTERFACE "${torch_root}/include"
                                                     "${torch_root}/include/torch/csrc/api/include")
# Links libtorch_cpu and libc10 by path, not libtorch.so, which needs all CUDA libraries.
target_link_libraries(libtorch INTERFACE "${torch_lib}/libtorch_cpu.so" "${torch_lib}/libc10.so"
                                         "${torch_lib}/libgomp.so.1")
target_link_options(
  libtorch INTERFACE "-Wl,-rpath,${torch_lib}" "-Wl,--enable-new-dtags"
  "-Wl,-rpath-link,${torch_lib}:${torch_site}/nvidia/cu13/lib")
# libtorch's templates have the mangled names of g++; clang's differ since version 18.
target_compile_options(
  libtorch INTERFACE
  "$<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,18>>:-fclang-abi-compat=17>")
# NDEBUG is part of the ABI (a member of RecordFunction depends on it).
target_compile_definitions(libtorch INTERFACE NDEBUG USE_DISTRIBUTED USE_C10D_GLOO)
