# The CUDA backend without a GPU and without CUDA: kernels are translated to C++ and run by the emulator
# of tests/emulator, as they are compiled for this architecture: 800, 900 or 1210.
set(PEWTER_EMULATED_ARCHITECTURE 900 CACHE STRING "Architecture of the emulated GPU")
if(NOT PEWTER_EMULATED_ARCHITECTURE MATCHES "^(800|900|1210)$")
  message(FATAL_ERROR "PEWTER_EMULATED_ARCHITECTURE: \"${PEWTER_EMULATED_ARCHITECTURE}\" is none of 800, 900, 1210")
endif()
add_compile_definitions(PEWTER_EMULATED_ARCHITECTURE=${PEWTER_EMULATED_ARCHITECTURE})
find_package(Boost 1.81 REQUIRED COMPONENTS context)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(PEWTER_TRANSLATED ${CMAKE_BINARY_DIR}/translated)
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
  src/backend/cuda/*.cu src/backend/cuda/*.cuh tests/emulator/*.cu)
set(translated ${kernels})
list(TRANSFORM translated REPLACE "\\.cu$" ".cu.cc")
list(TRANSFORM translated PREPEND ${PEWTER_TRANSLATED}/)
set(originals ${kernels})
list(TRANSFORM originals PREPEND ${CMAKE_SOURCE_DIR}/)
set(translator ${CMAKE_SOURCE_DIR}/tests/emulator/translate.py)
add_custom_command(OUTPUT ${translated}
  COMMAND Python3::Interpreter ${translator} ${CMAKE_SOURCE_DIR} ${PEWTER_TRANSLATED} ${kernels}
  DEPENDS ${translator} ${originals}
  COMMENT "Translating CUDA kernels to C++")
add_custom_target(translated_kernels DEPENDS ${translated})
set(CUDAToolkit_INCLUDE_DIRS ${CMAKE_SOURCE_DIR}/tests/emulator/include ${CMAKE_SOURCE_DIR}/tests)

# Kernels in a list of sources become what they are translated to, compiled without the warnings that
# nvcc gives.
function(pewter_translate sources)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM ${sources} REPLACE "^(.*\\.cu)$" "${PEWTER_TRANSLATED}/${folder}/\\1.cc")
  set(kernels ${${sources}})
  list(FILTER kernels INCLUDE REGEX "\\.cu\\.cc$")
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "-w")
  set(${sources} ${${sources}} PARENT_SCOPE)
endfunction()
