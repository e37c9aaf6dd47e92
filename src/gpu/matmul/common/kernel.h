/* The interface between the chooser and the kernels.
 *
 * A family is a set of shaders and the code that runs them. A configuration is a family with one
 * size of tile; it has a name. matmul/kernels/ holds the families for GPUs; gpu/cpu_drivers adds
 * those for lavapipe and SwiftShader. All configurations are listed in kernels/configs.c. */
#ifndef TSR_GPU_MATMUL_COMMON_KERNEL_H
#define TSR_GPU_MATMUL_COMMON_KERNEL_H

#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/matmul/common/problem.h"
#include "gpu/pipeline/shader.h"

/* The largest number of specialization constants of a configuration. */
#define TSR__MATMUL_SPEC_MAX 20

typedef struct tsr__matmul_family tsr__matmul_family;
typedef struct tsr__matmul_call tsr__matmul_call;

/* The configurations for GPUs: indices of the table in kernels/configs.c. Those for CPU drivers
 * follow. */
typedef enum tsr__matmul_id {
    TSR__MATMUL_TILED_L,
    TSR__MATMUL_TILED_M,
    TSR__MATMUL_TILED_M8,
    TSR__MATMUL_TILED_S,
    TSR__MATMUL_TILED_128X64,
    TSR__MATMUL_TILED_64X128,
    TSR__MATMUL_TILED_M_K32,
    TSR__MATMUL_TILED_32X64,
    TSR__MATMUL_PAIRS_L,
    TSR__MATMUL_PAIRS_M8,
    TSR__MATMUL_PAIRS_M,
    TSR__MATMUL_PAIRS_S,
    TSR__MATMUL_VECTOR_K,
    TSR__MATMUL_VECTOR_K16,
    TSR__MATMUL_VECTOR_COL,
    TSR__MATMUL_VECTOR_COL16,
    TSR__MATMUL_WIDE,
    TSR__MATMUL_COOPMAT_L,
    TSR__MATMUL_COOPMAT_S,
    TSR__MATMUL_COOPMAT_XL,
    TSR__MATMUL_COOPMAT_XL2,
    TSR__MATMUL_COOPMAT_2XL,
    TSR__MATMUL_COOPMAT_L64,
    TSR__MATMUL_COOPMAT_M,
    TSR__MATMUL_COOPMAT_32,
    TSR__MATMUL_COOPMAT_16,
    TSR__MATMUL_COOPMAT_S256,
    TSR__MATMUL_COOPMAT2_128X256,
    TSR__MATMUL_COOPMAT2_128X128,
    TSR__MATMUL_COOPMAT2_64X128,
    TSR__MATMUL_GPU_CONFIGS /* their number; also ends lists of configurations */
} tsr__matmul_id;

typedef struct tsr__matmul_config {
    const char *name;
    const tsr__matmul_family *family;
    uint32_t threads;   /* invocations per workgroup */
    uint32_t bm, bn;    /* rows and columns of y per workgroup */
    uint32_t bk;        /* elements of k per step */
    uint32_t tm, tn;    /* rows and columns of y per invocation */
    uint32_t vendor_id; /* the only vendor on whose devices the configuration runs; 0: all */
    /* the number of steps whose tiles are in shared memory at the same time: 2, or 0 for one */
    uint32_t buffers;
    uint32_t steps; /* the number of steps that the main loop unrolls; 0: the shader decides */
    uint32_t band;  /* BAND of matmul_tile.glsl; 0: 8 */
    /* the number of workgroups that a processor has room for, by registers and shared memory; 0:
     * unknown */
    uint32_t resident;
    bool stores_plain; /* stores only f32 sums; another dispatch applies the epilogue */
    /* needs vector loads of at least one operand; with scalar loads of both, it would spill
     * registers */
    bool vectors;
} tsr__matmul_config;

static inline uint32_t tsr__matmul_band(const tsr__matmul_config *config)
{
    return config->band > 0 ? config->band : 8;
}

/* The device properties that decide which kernels run and which are fast. */
typedef struct tsr__matmul_device {
    tsr__traits traits;
    const struct tsr__cpu_kernels *cpu; /* as in tsr_device */
    uint32_t vendor_id, device_id;
    uint32_t processors; /* 0: unknown */
    uint32_t max_invocations, max_shared_bytes;
    uint32_t subgroup_size, subgroup_size_min, subgroup_size_max;
    bool quads;         /* subgroups can exchange values within groups of four invocations */
    bool subgroup_sums; /* shaders can use subgroupAdd */
    bool int64;
    bool nvk;  /* the driver is Mesa's for NVIDIA's GPUs */
    bool dot2; /* there is an instruction that adds two products of f16 to a sum in f32 */
    /* the shapes for f16 and bf16; m is 0 if products of that dtype use none */
    tsr_coopmat_shape coopmat, coopmat_bf16;
    tsr__coopmat2 coopmat2;                        /* matrices that a workgroup shares */
    uint32_t coopmat_subgroup_size, max_subgroups; /* max_subgroups: per workgroup */
    uint64_t off; /* bit i: the configuration at index i must not be used */
} tsr__matmul_device;

/* How a workgroup's subgroups use cooperative matrices. A fragment is a product of one m × k and
 * one k × n matrix. */
typedef struct tsr__matmul_fragment {
    uint32_t m, n, k;       /* the size of a fragment; 0: no cooperative matrices */
    uint32_t subgroup_size; /* invocations per subgroup */
    /* the number of rows in which the subgroups of a workgroup are arranged */
    uint32_t down;
    uint32_t along_k; /* ALONG_K of matmul_coopmat.glsl: 0 or 1 */
    uint32_t staged;  /* the number of fragments that a subgroup stores together */
} tsr__matmul_fragment;

/* The properties, besides the configuration, for which a pipeline is specialised. All members have
 * 32 bits, so that variants can be compared as bytes. */
typedef struct tsr__matmul_variant {
    tsr_dtype a_dtype, b_dtype;
    uint32_t a_load, b_load;       /* TSR_MM_LOAD_… */
    uint32_t threads;              /* invocations per workgroup; 0: those of the configuration */
    uint32_t rows;                 /* 1, 2, 4, 8 or 16 in the kernels for few rows; 0 in others */
    uint32_t subgroup;             /* SUBGROUP of matmul_sums.glsl */
    tsr__matmul_fragment fragment; /* for kernels with cooperative matrices */
    uint32_t ahead;                /* AHEAD of matmul_tiled.glsl: 0, 1 or 2 */
    uint32_t own_mode; /* 1: matmul_tiled.glsl is specialised for the epilogue; otherwise 0 */
    /* 1: rows of a 16-bit y start at multiples of 16 bytes (matmul_coopmat2.glsl); otherwise 0 */
    uint32_t y_aligned;
    uint32_t dot2; /* 1: matmul_dot2.comp takes the place of matmul_pairs.comp; otherwise 0 */
    /* for kernels with cooperative matrices: the terms of a and b; 1 for operands that are not
     * narrowed */
    uint32_t a_terms, b_terms;
    /* for these kernels: BK if shared memory has the tiles of all terms at the same time, so that
     * a and b are read once; 0: there is a pass over k for each pair of terms */
    uint32_t depth;
    /* the epilogue: TSR_MM_…, without the fields for loads */
    uint32_t mode;
} tsr__matmul_variant;

/* The ways to compute a product. */
typedef enum tsr__matmul_method {
    TSR__MATMUL_NOTHING,       /* y is empty, or no kernel computes the product in this form */
    TSR__MATMUL_FLOATS,        /* a configuration multiplies floats */
    TSR__MATMUL_BLOCKS,        /* a kernel multiplies few rows of a by blocks */
    TSR__MATMUL_BLOCKS_CPU,    /* the same, by the kernels for CPU drivers */
    TSR__MATMUL_PANELS,        /* some rows of b at a time, a panel, are converted to floats */
    TSR__MATMUL_BLOCKS_UNREAD, /* b is in blocks, but k is 0 */
    TSR__MATMUL_NARROWED, /* operands are narrowed to 16 bits for the matrix units (narrowed.h) */
} tsr__matmul_method;

/* How one product is computed: everything that depends on shapes, dtypes, strides and the device.
 * It is resolved once (matmul/plan.h, quantized_weights.h) and then recorded. Only the fields of
 * the method are set. */
typedef struct tsr__matmul_plan {
    tsr__matmul_method method;
    /* for the methods TSR__MATMUL_FLOATS and TSR__MATMUL_NARROWED */
    const tsr__matmul_config *config;
    tsr__matmul_variant variant;
    uint32_t splits;  /* the number of ranges of k; if > 1, another dispatch adds up their sums */
    uint32_t k_chunk; /* the length of each range except the last */
    bool tuned;       /* a tuning chose this plan */
    /* for TSR__MATMUL_FLOATS and TSR__MATMUL_BLOCKS: call->gated */
    bool gated;
    struct { /* for the method TSR__MATMUL_BLOCKS */
        tsr__shader shader;
        uint32_t threads;  /* invocations per workgroup */
        uint32_t rows;     /* the number of rows of a for which the kernel is specialised */
        uint32_t b_rows;   /* rows of b that a workgroup multiplies */
        uint32_t subgroup; /* SUBGROUP of matmul_sums.glsl */
        uint32_t staging;  /* STAGED of matmul_blocks.glsl or matmul_quant.comp */
        int64_t at_once;   /* columns of y per dispatch */
    } blocks;
    struct { /* for the method TSR__MATMUL_PANELS */
        tsr_dtype dtype;
        int64_t rows; /* the number of rows of b in a panel */
    } panel;
    struct {                       /* for the method TSR__MATMUL_NARROWED */
        tsr_dtype dtype;           /* of the terms */
        uint32_t a_terms, b_terms; /* 0: the operand has this dtype and is not narrowed */
        int64_t columns; /* the number of columns of y whose columns of b are narrowed at a time */
    } narrowed;
} tsr__matmul_plan;

struct tsr__matmul_family {
    /* True if `device` can run `config` for some problem. */
    bool (*runs)(const tsr__matmul_config *config, const tsr__matmul_device *device);

    /* True if `config` can compute `problem` on a device for which `runs` is true. */
    bool (*fits)(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *problem);

    /* Sets those fields of `variant` that depend on the problem. On entry, `variant` has the dtypes
     * and scalar loads; the loads stay scalar if `vectors` is false. This pointer is NULL if there
     * are no such fields. */
    void (*specialize)(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       const tsr__matmul_problem *problem, bool vectors,
                       tsr__matmul_variant *variant);

    /* True if `specialize` can produce these dtypes, loads and rows on `device`. Then also sets the
     * other fields of `variant`. `rows` is 1 if the family does not use it. This pointer is NULL if
     * the family has only scalar loads. */
    bool (*has_variant)(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant);

    /* Writes the shader and its specialization constants, and returns the number of constants. This
     * pointer is NULL if `run` chooses the pipelines itself. */
    int (*pipeline)(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX]);

    /* Records the product. On failure nothing is recorded. */
    tsr_status (*run)(const tsr__matmul_call *call, const tsr__matmul_plan *plan);

    /* True if `run` computes this product with call->slope or call->times. This pointer is NULL if
     * the family computes none. */
    bool (*fuses)(const tsr__matmul_call *call);

    /* True if `run` computes this product, of plan->splits 1, with call->gated. This pointer is
     * NULL if the family computes none. */
    bool (*gates)(const tsr__matmul_problem *problem);

    /* True if `run` computes this product, of plan->splits 1, with call->norm. This pointer is NULL
     * if the family computes none. */
    bool (*normalises)(const tsr__matmul_problem *problem);

    bool splits_k; /* `run` uses plan->splits */
    /* `run` is tsr__matmul_run_tiles, and kernels of their own modes compute call->slope,
     * call->times and call->added. */
    bool fuses_tiles;
    /* True if `run`, which is tsr__matmul_run_tiles, computes call->sums with this plan. This
     * pointer is NULL if the family computes none. */
    bool (*sums_rows)(const tsr__matmul_plan *plan);
    bool narrows; /* computes problems with narrowed operands */
    /* With few rows, more invocations per workgroup take the place of ranges of k, so that no other
     * dispatch adds up their sums. */
    bool widens;
    /* the self-test also computes aᵀ·b, with a bias and a result of the operands' dtype */
    bool tests_forms;
    bool cpu_vectors; /* vector loads are faster on CPU drivers, too */
};

#endif
