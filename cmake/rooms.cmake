# How rooms, tests and fuzz targets are declared.
#
#   pewter_room(NAME SOURCES a.cc … DEPENDS room … [LIBRARIES Foo::foo …])   a static library pewter_NAME
#   pewter_test(NAME LABEL unit|unit-threads|op|golden|engine|cli|server|cuda SOURCES … DEPENDS room …)   a GoogleTest program, run by ctest
#   pewter_fuzz(NAME SOURCES … DEPENDS room …)                               a libFuzzer program (clang, PEWTER_FUZZ)

add_library(pewter_flags INTERFACE)
target_compile_options(pewter_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:PEWTER_MIXES_SIGNS>>>:-Wsign-conversion>  # which clang's -Wconversion has in it
  -Wno-missing-field-initializers  # designated initialisers leave the rest at their defaults on purpose
  -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers -Werror=all-warnings --fmad=false>)
if(PEWTER_FUZZ)
  target_compile_options(pewter_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=all -g1
    -Wno-deprecated-declarations)  # clang 19 sees libstdc++ 12's stable_sort use what C++20 deprecates
  add_link_options(-fsanitize=address,undefined)
elseif(PEWTER_SANITIZE)
  target_compile_options(pewter_flags INTERFACE -fsanitize=${PEWTER_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PEWTER_SANITIZE})
endif()
if(PEWTER_EMULATED)
  target_include_directories(pewter_flags INTERFACE ${PEWTER_TRANSLATED}/src)  # before src
endif()
target_include_directories(pewter_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

function(pewter_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(PEWTER_EMULATED)
    pewter_translate(ROOM_SOURCES)
  endif()
  add_library(pewter_${name} STATIC ${ROOM_SOURCES})
  list(TRANSFORM ROOM_DEPENDS PREPEND pewter_)
  target_link_libraries(pewter_${name} PUBLIC pewter_flags ${ROOM_DEPENDS} PRIVATE ${ROOM_LIBRARIES})
endfunction()

# Where test programs find fixtures and models; "." for programs that are carried to another machine
# and run from the root of a copy.
set(PEWTER_TEST_ROOT "${CMAKE_SOURCE_DIR}" CACHE STRING "Root of the sources as tests see it")
add_custom_target(thread_tests)  # what ThreadSanitizer runs, and nothing else
add_custom_target(gpu_tests)     # what has cases on a GPU
add_custom_target(short_tests)   # those of the labels unit and op
function(pewter_test name)
  if(NOT PEWTER_TESTS)
    return()
  endif()
  cmake_parse_arguments(TEST "" "LABEL;TIMEOUT" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 900)
  endif()
  if(PEWTER_EMULATED)
    pewter_translate(TEST_SOURCES)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  if(TEST_LABEL MATCHES "engine|threads|server")
    add_dependencies(thread_tests ${name})
  endif()
  if(TEST_LABEL MATCHES "unit|op")
    add_dependencies(short_tests ${name})
  endif()
  if(TEST_LABEL MATCHES "^(op|engine|golden|cuda)$")
    add_dependencies(gpu_tests ${name})
  endif()
  list(TRANSFORM TEST_DEPENDS PREPEND pewter_)
  target_link_libraries(${name} PRIVATE pewter_flags ${TEST_DEPENDS} ${TEST_LIBRARIES}
    GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE PEWTER_SOURCE_DIR="${PEWTER_TEST_ROOT}")
  set(options NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  if(PEWTER_TEST_ROOT STREQUAL ".")
    list(APPEND options WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  endif()
  set(filter_others)
  if(PEWTER_CUDA AND NOT TEST_LABEL STREQUAL "cuda")
    # Cases on the GPU are known by their names; one runs at a time, since they would share its memory.
    set(gpu_lock RESOURCE_LOCK gpu)
    if(PEWTER_EMULATED)
      set(gpu_lock)  # each process has its own
    endif()
    set(on_gpu "Cuda/*:*/cuda_*:*_cuda*:*/cuda")
    gtest_discover_tests(${name} ${options} TEST_FILTER "${on_gpu}" TEST_LIST ${name}_ON_GPU
      PROPERTIES LABELS cuda TIMEOUT ${TEST_TIMEOUT} ${gpu_lock})
    set(filter_others TEST_FILTER "-${on_gpu}")
  endif()
  gtest_discover_tests(${name} ${options} ${filter_others}
    PROPERTIES LABELS "${TEST_LABEL}" TIMEOUT ${TEST_TIMEOUT})
endfunction()

if(PEWTER_FUZZ)
  add_custom_target(fuzz_targets)  # all of them and nothing they do not need
endif()
function(pewter_fuzz name)
  cmake_parse_arguments(FUZZ "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${FUZZ_SOURCES})
  add_dependencies(fuzz_targets ${name})
  list(TRANSFORM FUZZ_DEPENDS PREPEND pewter_)
  target_link_libraries(${name} PRIVATE pewter_flags ${FUZZ_DEPENDS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()
