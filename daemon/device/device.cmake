# What the room's glob cannot know: the kernels of the CUDA device, or their stand-in.

set(device_dir ${CMAKE_CURRENT_SOURCE_DIR}/device)
target_sources(tutti_device PRIVATE ${device_dir}/cuda_device.cc)

# nvcc: found, not required. It makes a file of kernels that the program loads with the driver; no
# runtime of CUDA is linked.
find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(TUTTI_NVCC)
set(with_cuda ${TUTTI_CUDA})
if(TUTTI_CUDA STREQUAL "AUTO")
  set(with_cuda OFF)
  if(TUTTI_NVCC)
    set(with_cuda ON)
  endif()
elseif(TUTTI_CUDA AND NOT TUTTI_NVCC)
  message(FATAL_ERROR "TUTTI_CUDA=ON, but nvcc is not found: put it in PATH, set CUDA_HOME, or use "
                      "-DTUTTI_CUDA=OFF")
endif()

if(with_cuda)
  # Code for sm_80, sm_90 and sm_100, and PTX for what comes later.
  set(architectures -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
                    -gencode arch=compute_100,code=sm_100 -gencode arch=compute_100,code=compute_100)
  set(kernels ${CMAKE_CURRENT_BINARY_DIR}/cuda_kernels.fatbin)
  # -fmad=false: as the host's kernels, no contraction.
  add_custom_command(
    OUTPUT ${kernels}
    COMMAND ${TUTTI_NVCC} -fatbin -std=c++20 --expt-relaxed-constexpr -fmad=false ${architectures}
            -I${CMAKE_SOURCE_DIR} -MD -MF ${kernels}.d -o ${kernels} ${device_dir}/cuda_reduce.cu
    DEPENDS ${device_dir}/cuda_reduce.cu
    DEPFILE ${kernels}.d
    COMMENT "Compiling the kernels for CUDA"
    VERBATIM)
  target_sources(tutti_device PRIVATE ${device_dir}/cuda_kernels.cc)
  set_source_files_properties(${device_dir}/cuda_kernels.cc PROPERTIES
                              OBJECT_DEPENDS ${kernels}
                              COMPILE_DEFINITIONS TUTTI_CUDA_KERNELS="${kernels}")
  message(STATUS "CUDA kernels: built with ${TUTTI_NVCC}")
else()
  target_sources(tutti_device PRIVATE ${device_dir}/cuda_kernels_absent.cc)
  message(STATUS "CUDA kernels: left out")
endif()
