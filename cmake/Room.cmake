# Makes a static library part of the installed package (cmake/Package.cmake).
function(tanren_library target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC $<BUILD_INTERFACE:tanren_flags>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY TANREN_LIBRARIES ${target})
endfunction()

# tanren_room(NAME [IN room] DEPENDS rooms… SOURCES files… TESTS files… [TORCH_FREE] [SHARDS N]
#             [LINK targets…])
#
# Declares one room: a static library tanren_<NAME> and, if it has TESTS, one test binary
# tanren_<NAME>_test (a unity build). DEPENDS may only name lower rooms; layers_test checks that
# independently, from the #include lines.
# IN names a room declared before, whose library and test binary hold this room's sources too;
# tanren_<NAME> then only links to it. A compiler that includes torch works 6 s before the first line
# of a room, so small rooms share one.
function(tanren_room name)
  cmake_parse_arguments(room "TORCH_FREE" "IN;SHARDS" "DEPENDS;SOURCES;TESTS;LINK" ${ARGN})
  set(target tanren_${name})
  set(holder ${name})
  if(room_IN)
    if(room_SHARDS OR room_TORCH_FREE)
      message(FATAL_ERROR "room ${name}: SHARDS and TORCH_FREE are those of ${room_IN}")
    endif()
    set(holder ${room_IN})
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE tanren_${holder})
    set_property(GLOBAL APPEND PROPERTY TANREN_LIBRARIES ${target})
  else()
    add_library(${target} STATIC)
    tanren_library(${target})
    if(NOT room_TORCH_FREE)
      target_link_libraries(${target} PUBLIC libtorch)
      target_precompile_headers(${target} REUSE_FROM tanren_pch)
    endif()
  endif()
  set_property(GLOBAL PROPERTY TANREN_HOLDER_OF_${name} ${holder})
  target_sources(tanren_${holder} PRIVATE ${room_SOURCES})
  target_link_libraries(tanren_${holder} PUBLIC ${room_LINK})
  foreach(dependency IN LISTS room_DEPENDS)
    get_property(held_by GLOBAL PROPERTY TANREN_HOLDER_OF_${dependency})
    if(NOT held_by)
      message(FATAL_ERROR "room ${name} depends on ${dependency}, which no line before declares")
    endif()
    if(NOT held_by STREQUAL holder)
      target_link_libraries(tanren_${holder} PUBLIC tanren_${held_by})
    endif()
  endforeach()
  if(room_TESTS AND TANREN_TESTS AND room_IN)
    target_sources(tanren_${holder}_test PRIVATE ${room_TESTS})
  elseif(room_TESTS AND TANREN_TESTS)
    if(room_TORCH_FREE)
      set(torch_free TORCH_FREE)
    endif()
    if(room_SHARDS)
      set(shards SHARDS ${room_SHARDS})
    endif()
    tanren_test(${target}_test ${torch_free} ${shards} LABEL unit SOURCES ${room_TESTS} LINK ${target})
  endif()
endfunction()

# tanren_forks(TESTS…): in these tests, commands are forks (tests/support/forked.h).
function(tanren_forks)
  foreach(test IN LISTS ARGN)
    target_compile_definitions(${test} PRIVATE TANREN_FORK_SERVER="$<TARGET_FILE:fork_server>"
                                               TANREN_FORK_CLIENT="$<TARGET_FILE:fork_client>")
    add_dependencies(${test} fork_server fork_client)
  endforeach()
endfunction()

# tanren_test_pch(TARGET): builds TARGET as tests are built, with their precompiled header. It contains
# gtest.h, so TARGET needs the definitions of GTest.
function(tanren_test_pch target)
  target_precompile_headers(${target} REUSE_FROM ${TANREN_TEST_PCH})
  target_link_libraries(${target} PRIVATE GTest::gtest)
  target_compile_options(${target} PRIVATE ${TANREN_TEST_OPTIONS})
endfunction()

# tanren_test(NAME [TORCH_FREE] [SHARDS N] LABEL unit|whole|distributed|gpu SOURCES files… LINK targets…)
# Declares one GoogleTest binary, built as one unit, which ctest runs as one test. Tests that mostly
# wait are run as N processes side by side (SHARDS).
function(tanren_test name)
  cmake_parse_arguments(test "TORCH_FREE" "LABEL;SHARDS" "SOURCES;LINK;DEFINE" ${ARGN})
  add_executable(${name} ${test_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(${name} PRIVATE ${test_LINK} no_flush GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TANREN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             ${test_DEFINE})
  if(NOT test_TORCH_FREE)
    target_link_libraries(${name} PRIVATE libtorch)
    tanren_test_pch(${name})
  else()
    target_compile_options(${name} PRIVATE ${TANREN_TEST_OPTIONS})
  endif()
  if(test_SHARDS)
    set(shards ${PROJECT_SOURCE_DIR}/tests/support/shards ${test_SHARDS})
  endif()
  add_test(NAME ${name} COMMAND ${shards} $<TARGET_FILE:${name}> --gtest_brief=1)
  set(timeout 600)
  if(TANREN_SANITIZE) # three to five times slower
    set(timeout 2400)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${test_LABEL} TIMEOUT ${timeout} ENVIRONMENT "${TANREN_TEST_ENV}")
endfunction()
