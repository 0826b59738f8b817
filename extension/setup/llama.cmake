# llama.cpp's "common" library serves its command-line tools, which are not built: half of the compile time.
set(LLAMA_BUILD_COMMON OFF)
