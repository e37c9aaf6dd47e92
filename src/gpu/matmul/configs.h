/* The kernels there are, what each can do, and the pipelines they need. */
#ifndef TSR_GPU_MATMUL_CONFIGS_H
#define TSR_GPU_MATMUL_CONFIGS_H

#include "gpu/device/device.h"
#include "gpu/matmul/problem.h"

/* Room for the specialization constants of any configuration. */
#define TSR__MATMUL_SPEC_MAX 16

typedef enum tsr__matmul_kind {
    TSR__MATMUL_TILED,    /* tiles in shared memory: any shape, strides below 2^31 bytes per tile */
    TSR__MATMUL_VECTOR_K, /* few rows; invocations along k */
    TSR__MATMUL_VECTOR_COL,  /* few rows; invocations along the columns of b */
    TSR__MATMUL_WIDE,        /* one element per invocation, 64-bit addresses: everything */
    TSR__MATMUL_LAVAPIPE,    /* straight-line kernels for Mesa's CPU driver, see lavapipe.h */
    TSR__MATMUL_SWIFTSHADER, /* a subgroup of 4 per tile, for SwiftShader */
    TSR__MATMUL_COOPMAT,     /* f16 or bf16 by cooperative matrices, tiles as above */
} tsr__matmul_kind;

typedef struct tsr__matmul_config {
    const char *name;
    tsr__matmul_kind kind;
    uint32_t threads;  /* invocations per workgroup */
    uint32_t bm, bn;   /* elements of y per workgroup */
    uint32_t bk;       /* products per step */
    uint32_t tm, tn;   /* elements of y per invocation */
    bool stores_plain; /* stores f32 sums only: the rest of the epilogue is another dispatch */
    bool vectors;      /* needs vector loads of a or of b, for lack of registers otherwise */
} tsr__matmul_config;

/* How subgroups multiply: cooperative matrices of m × k by k × n. */
typedef struct tsr__matmul_fragment {
    uint32_t m, n, k;       /* 0: not at all */
    uint32_t subgroup_size; /* invocations */
    uint32_t down;          /* subgroups above each other in a workgroup's tile */
    uint32_t staged;        /* fragments that a subgroup stores together */
} tsr__matmul_fragment;

/* What else a pipeline is specialised for. */
typedef struct tsr__matmul_variant {
    tsr_dtype a_dtype, b_dtype;
    uint32_t a_load, b_load;       /* TSR_MM_LOAD_… */
    uint32_t rows;                 /* of the kernels for few rows: 1, 2, 4 or 8 */
    tsr__matmul_fragment fragment; /* of the kernels with cooperative matrices */
} tsr__matmul_variant;

/* What the choice looks at in a device. */
typedef struct tsr__matmul_device {
    tsr__device_class device_class;
    uint32_t vendor_id;
    uint32_t max_invocations, max_shared_bytes;
    uint32_t subgroup_size;
    bool quads; /* subgroups can swap within four invocations */
    bool int64;
    tsr_coopmat_shape coopmat, coopmat_bf16; /* m is 0 where products use none of f16, of bf16 */
    uint32_t coopmat_subgroup_size, max_subgroups; /* in a workgroup */
    tsr__tuned *tuned;                             /* or NULL */
} tsr__matmul_device;

tsr__matmul_device tsr__matmul_device_of(const tsr_device *device);

/* NULL past the end of the table. */
const tsr__matmul_config *tsr__matmul_config_at(int index);
const tsr__matmul_config *tsr__matmul_config_named(const char *name);

/* Whether `device` could run it for any problem at all, and whether it does for this one. */
bool tsr__matmul_config_runs(const tsr__matmul_config *config, const tsr__matmul_device *device);
bool tsr__matmul_config_fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                             const tsr__matmul_problem *problem);

/* The variant that suits a problem; `vectors` false keeps to scalar loads. */
tsr__matmul_variant tsr__matmul_variant_for(const tsr__matmul_config *config,
                                            const tsr__matmul_device *device,
                                            const tsr__matmul_problem *problem, bool vectors);

/* The shader of a configuration, and its specialization constants, whose number it returns. */
int tsr__matmul_pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                         tsr__shader *shader, uint32_t spec[]);

/* Calls `visit` for every pipeline that the configuration can need on the device. */
typedef void (*tsr__matmul_visit_fn)(void *user, const tsr__matmul_config *config,
                                     const tsr__matmul_variant *variant);
void tsr__matmul_each_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                              tsr__matmul_visit_fn visit, void *user);

#endif
