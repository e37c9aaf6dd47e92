/* The traits of a device: in what a driver that runs on the host's CPUs differs from a GPU, as far
 * as the choice of kernels depends on it. Kernels ask for a trait, never for the kind of driver. */
#ifndef TSR_GPU_DEVICE_TRAITS_H
#define TSR_GPU_DEVICE_TRAITS_H

#include <stdbool.h>
#include <stdint.h>

/* The kinds of drivers. Only gpu/device and gpu/cpu_drivers use them. */
typedef enum tsr__device_class {
    TSR__CLASS_GPU,
    TSR__CLASS_LAVAPIPE, /* Mesa's CPU driver: fast only in straight-line code */
    TSR__CLASS_CPU       /* other CPU drivers, for example SwiftShader */
} tsr__device_class;

/* All flags are false on GPUs. The comment of a trait ends with the kernels that ask for it. */
typedef struct tsr__traits {
    tsr__device_class device_class;
    /* Few invocations run at the same time, and starting one costs more than an access to memory.
     * Work is divided among few invocations. (copies, RoPE, packing, reductions, attention, long
     * rows, gradients of embeddings and of tsr_index_select, split products) */
    bool few_invocations;
    /* Loads and stores of vectors are executed element by element. (rows, reductions, fill,
     * products) */
    bool narrow_accesses;
    /* A barrier switches from one invocation of a workgroup to the next, so that shared memory has
     * no advantage. (softmax, normalisation, cross-entropy and reductions of many rows, transposing
     * copies, the gradient of an embedding, the gated delta rule) */
    bool slow_barriers;
    /* An invocation has few registers. Kernels neither load several elements before they use the
     * first, nor keep a row. (softmax, normalisation and its gradient, reductions) */
    bool few_registers;
    /* Arrays in a kernel, and tables of constants, are copied to a stack for each invocation.
     * (normal random numbers) */
    bool slow_tables;
    /* Compiling a pipeline for a special case takes more time than the pipeline saves. Pipelines
     * are so large that only TSR__CPU_PIPELINES of them are kept. (the cache of pipelines,
     * epilogues of tiled products, attention of few queries) */
    bool slow_pipelines;
    /* Compiling kernels that decode block formats takes seconds. (products with block formats) */
    bool slow_decoding;
    /* vkCmdCopyBuffer and vkCmdFillBuffer run as memcpy and memset, faster than any kernel. On GPUs
     * they may run on a copy engine, which is slower than kernels. (copies, fill) */
    bool memcpy_commands;
    /* All loops of an invocation end after 65535 iterations in total, even if work is left.
     * (attention) */
    bool ends_loops;
    /* The tables of GPUs (matmul/chip_tiles.h) do not describe the device, and matrix units do not
     * make products faster. (products, attention, tunings) */
    bool not_a_chip;
    /* The least bytes of a row that vkCmdCopyBuffer copies faster than a kernel, measured with
     * `tessera bench copy`. (copies) */
    uint32_t command_row_bytes;
    /* The most iterations that all loops of an invocation together may execute in one dispatch.
     * (all operations with loops over rows) */
    uint32_t most_iterations;
} tsr__traits;

/* Returns the traits of a kind of driver. */
tsr__traits tsr__traits_of(tsr__device_class device_class);

#endif
