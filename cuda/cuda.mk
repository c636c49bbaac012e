# cuda.mk - the CUDA backend, and its kernels on an emulated device.

.PHONY: cuda cuda-left-out cuda-on-cpu

# The CUDA backend. CUDA_ARCH says for which devices: "ptx" (the default) is one intermediate form
# that every device from the oldest on translates when it is first loaded; "all" is machine code for
# each that this nvcc knows of 7.0 to 12.0 (12.8 and 12.9 know them all), and the newest's
# intermediate form for later ones, which takes minutes; or numbers, as in CUDA_ARCH="80 90".
CUDA_ARCH ?= ptx
CUDA_ALL   = 70 75 80 86 89 90 100 120
CUDA_ALSO  = 110 # a board's, of a generation between: no other's machine code runs on it
NVCC_PATH := $(shell command -v $(NVCC) 2>/dev/null)
ifneq ($(NVCC_PATH),)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC_PATH)))
CUDA_KNOWN := $(filter $(CUDA_ALL) $(CUDA_ALSO),$(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch 2>/dev/null)))
CUDA_WANT  = $(filter-out ptx,$(if $(filter all,$(CUDA_ARCH)),$(CUDA_KNOWN),$(CUDA_ARCH)))
CUDA_LACKS = $(if $(filter all,$(CUDA_ARCH)),$(filter-out $(CUDA_KNOWN),$(CUDA_ALL)))
CUDA_PTX   = $(if $(CUDA_WANT),$(lastword $(CUDA_WANT)),$(firstword $(CUDA_KNOWN)))
endif
CUDAFLAGS = -std=c++17 -O3 -fmad=false -Werror all-warnings -Wno-deprecated-gpu-targets -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden \
	$(foreach a,$(CUDA_WANT),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(CUDA_PTX),code=compute_$(CUDA_PTX) -MMD -MP
# What it asks the reference for: chunks of quantiles, code books, element types, status names.
CUDA_NEEDS = $(addprefix ref/,base.c compress.c dgc.c dtype.c quant.c outer/chunks.c)
cuda: $(if $(CUDA_KNOWN),$(BUILD)/libpl_cuda.so,cuda-left-out) ## the CUDA backend (CUDA_ARCH=all: machine code for every device)
cuda-left-out:
	@echo "CUDA left out: $(if $(NVCC_PATH),$(NVCC) lists no device of sm_70 or later with --list-gpu-arch,no $(or $(NVCC),nvcc) on the PATH)"
# Objects know what they were compiled for: other flags compile them anew.
$(BUILD)/obj/cuda/flags: always
	@mkdir -p $(@D)
	@echo '$(NVCC) $(CUDAFLAGS)' | cmp -s - $@ || echo '$(NVCC) $(CUDAFLAGS)' > $@
.PHONY: always
$(BUILD)/obj/cuda/%.o: cuda/%.cu $(BUILD)/obj/cuda/flags
	@mkdir -p $(@D)
	$(NVCC) $(CUDAFLAGS) -MF $(@:.o=.d) -c -o $@ $<
# The oldest device's PTX has no bfloat16 tensor-core instructions: files that need them also get
# sm_80's PTX.
CUDA_ALSO_PTX = $(if $(CUDA_WANT),,$(filter-out $(CUDA_PTX),$(filter 80,$(CUDA_KNOWN))))
$(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard cuda/*_bf16*.cu)): private CUDAFLAGS += \
	$(foreach a,$(CUDA_ALSO_PTX),-gencode arch=compute_$(a),code=compute_$(a))
$(BUILD)/libpl_cuda.so: $(patsubst %.cu,$(BUILD)/obj/%.o,$(CUDA_C)) $(call obj,$(CUDA_NEEDS)) runtime/backend.map
	$(if $(CUDA_LACKS),@echo "CUDA without machine code for $(CUDA_LACKS:%=sm_%): this nvcc does not know it (12.8 and 12.9 know all)")
	$(NVCC) -shared -Xlinker --version-script=runtime/backend.map $(if $(WHOLE),-Xlinker -z -Xlinker defs) -o $@ $(filter %.o,$^) -L$(CUDA_HOME)/lib64 -Xlinker -rpath,$(CUDA_HOME)/lib64 -lcublas

# The same kernels for the CPU, blocks and threads emulated: tests what they compute, not how fast.
EMUFLAGS = -x c++ -std=c++17 -O2 -ffp-contract=off -fno-exceptions -fno-rtti -fPIC -fvisibility=hidden -Wall \
	-Wextra -Wno-unused-function -Itest/cuda_on_cpu -MMD -MP $(SANITIZE) $(CFLAGS)
cuda-on-cpu: $(BUILD)/libpl_cuda_on_cpu.so $(BUILD)/cuda_on_cpu_check ## the CUDA kernels on an emulated device, for tests
$(BUILD)/obj/cuda_on_cpu/%.cu.o: cuda/%.cu
	@mkdir -p $(@D)
	$(CXX) $(EMUFLAGS) -c -o $@ $<
$(BUILD)/obj/cuda_on_cpu/%.cpp.o: test/cuda_on_cpu/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(EMUFLAGS) -c -o $@ $<
EMU_O = $(patsubst cuda/%,$(BUILD)/obj/cuda_on_cpu/%.o,$(CUDA_C)) \
	$(patsubst test/cuda_on_cpu/%,$(BUILD)/obj/cuda_on_cpu/%.o,$(EMU_C))
$(BUILD)/libpl_cuda_on_cpu.so: $(EMU_O) $(call obj,$(CUDA_NEEDS)) runtime/backend.map
	$(CXX) -shared -Wl,--version-script=runtime/backend.map $(WHOLE) $(SANITIZE) -o $@ $(filter %.o,$^) -lm
$(BUILD)/cuda_on_cpu_check: $(addprefix $(BUILD)/obj/cuda_on_cpu/,check/check.cpp.o emulator.cpp.o tensor_core.cpp.o streams.cpp.o)
	$(CXX) $(SANITIZE) -o $@ $^
