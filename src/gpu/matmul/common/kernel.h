/* The interface between the chooser and the kernels.
 *
 * A family is a set of shaders and the code that runs them. A configuration is a family with one
 * size of tile; it has a name. matmul/kernels/ holds the families for GPUs; gpu/cpu_drivers adds
 * those for lavapipe and SwiftShader. All of them are lines of the table in kernels/configs.c. */
#ifndef TSR_GPU_MATMUL_COMMON_KERNEL_H
#define TSR_GPU_MATMUL_COMMON_KERNEL_H

#include "gpu/device/device.h"
#include "gpu/matmul/common/problem.h"
#include "gpu/pipeline/shader.h"

/* Room for the specialization constants of any configuration. */
#define TSR__MATMUL_SPEC_MAX 16

#define TSR__VENDOR_NVIDIA 0x10de

typedef struct tsr__matmul_family tsr__matmul_family;
typedef struct tsr__matmul_call tsr__matmul_call;

typedef struct tsr__matmul_config {
    const char *name;
    const tsr__matmul_family *family;
    uint32_t threads;   /* invocations per workgroup */
    uint32_t bm, bn;    /* elements of y per workgroup */
    uint32_t bk;        /* products per step */
    uint32_t tm, tn;    /* elements of y per invocation */
    uint32_t vendor_id; /* the only vendor whose devices run it; 0: any */
    uint32_t buffers;   /* steps whose tiles shared memory holds at once: 2, or 0 for one */
    bool stores_plain; /* stores f32 sums only; another dispatch applies the rest of the epilogue */
    bool vectors;      /* needs vector loads of a or of b; scalar loads would spill registers */
} tsr__matmul_config;

/* The device properties that decide which kernels run and which are fast. */
typedef struct tsr__matmul_device {
    tsr__device_class device_class;
    uint32_t vendor_id;
    uint32_t max_invocations, max_shared_bytes;
    uint32_t subgroup_size;
    bool quads; /* subgroups can exchange values within groups of four invocations */
    bool int64;
    tsr_coopmat_shape coopmat, coopmat_bf16; /* m is 0 if products of f16 (bf16) do not use any */
    uint32_t coopmat_subgroup_size, max_subgroups; /* per workgroup */
} tsr__matmul_device;

/* The cooperative matrices that subgroups multiply: m × k by k × n. */
typedef struct tsr__matmul_fragment {
    uint32_t m, n, k;       /* 0: none */
    uint32_t subgroup_size; /* invocations */
    uint32_t down;          /* rows of subgroups in a workgroup's tile */
    uint32_t staged;        /* fragments that a subgroup stores together */
} tsr__matmul_fragment;

/* The properties for which a pipeline is specialised, in addition to its configuration. */
typedef struct tsr__matmul_variant {
    tsr_dtype a_dtype, b_dtype;
    uint32_t a_load, b_load;       /* TSR_MM_LOAD_… */
    uint32_t rows;                 /* 1, 2, 4, 8 or 16 in the kernels for few rows, otherwise 0 */
    tsr__matmul_fragment fragment; /* of the kernels with cooperative matrices */
} tsr__matmul_variant;

/* How one product is computed. */
typedef struct tsr__matmul_plan {
    const tsr__matmul_config *config;
    tsr__matmul_variant variant;
    uint32_t splits;  /* parts into which k is split; another dispatch adds their sums */
    uint32_t k_chunk; /* length of each part but the last */
    bool tuned;       /* a tuning chose this plan */
} tsr__matmul_plan;

struct tsr__matmul_family {
    /* True if `device` can run `config` for some problem. */
    bool (*runs)(const tsr__matmul_config *config, const tsr__matmul_device *device);

    /* True if it can compute `problem` on a device for which `runs` is true. */
    bool (*fits)(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *problem);

    /* Sets the fields of `variant` that depend on the problem. `variant` comes with dtypes and
     * scalar loads; if `vectors` is false, loads stay scalar. NULL if there are no such fields. */
    void (*specialize)(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       const tsr__matmul_problem *problem, bool vectors,
                       tsr__matmul_variant *variant);

    /* True if `specialize` may produce these dtypes, loads and rows on `device`; sets the other
     * fields of `variant`. `rows` is 1 if the family does not use it. NULL if there are only scalar
     * loads. */
    bool (*has_variant)(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant);

    /* Writes the shader and its specialization constants, and returns their number. NULL if `run`
     * chooses pipelines itself. */
    int (*pipeline)(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX]);

    /* Records the product. On failure nothing is recorded. */
    tsr_status (*run)(const tsr__matmul_call *call, const tsr__matmul_plan *plan);

    bool splits_k;    /* `run` uses plan->splits */
    bool cpu_vectors; /* vector loads are also faster on CPU drivers */
};

#endif
