# What the room's glob cannot know: the CUDA device or its stand-in.

set(device_dir ${CMAKE_CURRENT_SOURCE_DIR}/device)

# CUDA: found, not required. Its runtime is linked statically and looks for a driver when the program
# runs. AUTO leaves it out under a sanitizer, whose flags nvcc does not know.
find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(TUTTI_NVCC)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND TUTTI_NVCC)
  set(CMAKE_CUDA_COMPILER ${TUTTI_NVCC})
endif()
set(with_cuda ${TUTTI_CUDA})
if(TUTTI_CUDA STREQUAL "AUTO")
  set(with_cuda OFF)
  if(TUTTI_NVCC AND NOT TUTTI_SANITIZER)
    set(with_cuda ON)
  endif()
elseif(TUTTI_CUDA AND NOT TUTTI_NVCC)
  message(FATAL_ERROR "TUTTI_CUDA=ON, but nvcc is not found: put it in PATH, set CUDA_HOME, or use "
                      "-DTUTTI_CUDA=OFF")
endif()
if(with_cuda)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND TUTTI_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA device: left out, ${TUTTI_NVCC} does not work")
    set(with_cuda OFF)
  endif()
endif()

if(with_cuda)
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # Unknown to Debian's CMake.
  find_package(CUDAToolkit REQUIRED)
  target_sources(tutti_device PRIVATE ${device_dir}/cuda_device.cc ${device_dir}/cuda_reduce.cu)
  # -fmad=false: as the host's kernels, no contraction.
  set_source_files_properties(${device_dir}/cuda_reduce.cu PROPERTIES
                              COMPILE_OPTIONS "--expt-relaxed-constexpr;-fmad=false")
  # Code for sm_80 and sm_90, and PTX for what comes later.
  set_target_properties(tutti_device PROPERTIES CUDA_ARCHITECTURES "80-real;90"
                        CUDA_RUNTIME_LIBRARY Static)
  target_link_libraries(tutti_device PRIVATE CUDA::cudart_static)
  message(STATUS "CUDA device: built with ${CMAKE_CUDA_COMPILER}")
else()
  target_sources(tutti_device PRIVATE ${device_dir}/cuda_absent.cc)
  message(STATUS "CUDA device: left out")
endif()
