# What the room's glob cannot know: the kernels by processor.

# No contraction: every processor computes the same bits. No traps: min and max need no branches.
set(kernel_flags -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wno-psabi)
set(kernel_dir ${CMAKE_CURRENT_SOURCE_DIR}/kernel)
set_source_files_properties(${kernel_dir}/kernel_baseline.cc PROPERTIES
                            COMPILE_OPTIONS "${kernel_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${kernel_dir}/x86/kernel_avx2.cc PROPERTIES
                              COMPILE_OPTIONS "${kernel_flags};-mavx2;-mf16c")
  # GCC 12 sees its own header use what it did not set (GCC bug 105593).
  set_source_files_properties(${kernel_dir}/x86/kernel_avx512.cc PROPERTIES
    COMPILE_OPTIONS "${kernel_flags};-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512;-Wno-uninitialized;-Wno-maybe-uninitialized")
  target_sources(tutti_kernel PRIVATE ${kernel_dir}/x86/usable_kernels.cc
                 ${kernel_dir}/x86/plain_arithmetic.cc
                 ${kernel_dir}/x86/kernel_avx2.cc ${kernel_dir}/x86/kernel_avx512.cc)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set_source_files_properties(${kernel_dir}/arm/kernel_neon.cc PROPERTIES
                              COMPILE_OPTIONS "${kernel_flags}")
  target_sources(tutti_kernel PRIVATE ${kernel_dir}/arm/usable_kernels.cc
                 ${kernel_dir}/portable/plain_arithmetic.cc
                 ${kernel_dir}/arm/kernel_neon.cc)
else()
  target_sources(tutti_kernel PRIVATE ${kernel_dir}/portable/usable_kernels.cc
                 ${kernel_dir}/portable/plain_arithmetic.cc)
endif()
