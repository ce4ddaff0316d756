# What the room's glob cannot know: the kernels by processor.

# No contraction: every processor computes the same bits. No errno, no traps: loops of min and max
# become vector code; so they do only without value-range propagation, which splits their bodies.
set(kernel_flags -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-tree-vrp -Wno-psabi)
set(kernel_dir ${CMAKE_CURRENT_SOURCE_DIR}/kernel)
set_source_files_properties(${kernel_dir}/kernel_baseline.cc PROPERTIES
                            COMPILE_OPTIONS "${kernel_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${kernel_dir}/x86/kernel_avx2.cc PROPERTIES
                              COMPILE_OPTIONS "${kernel_flags};-mavx2;-mf16c")
  set_source_files_properties(${kernel_dir}/x86/kernel_avx512.cc PROPERTIES
    COMPILE_OPTIONS "${kernel_flags};-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
  target_sources(tutti_kernel PRIVATE ${kernel_dir}/x86/choose_kernel.cc
                 ${kernel_dir}/x86/kernel_avx2.cc ${kernel_dir}/x86/kernel_avx512.cc)
else()
  target_sources(tutti_kernel PRIVATE ${kernel_dir}/portable/choose_kernel.cc)
endif()
