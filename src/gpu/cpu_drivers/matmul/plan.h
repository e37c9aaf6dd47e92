/* Divides one product on lavapipe into dispatches of its straight-line kernels. These functions are
 * pure arithmetic.
 *
 * These kernels have no loops. Therefore k is divided into stretches: consecutive ranges of a few
 * fixed lengths. There is a pipeline for each length, and each dispatch adds the products of one
 * stretch to the sums. The lengths depend only on the size of the problem, so that small problems
 * share a few pipelines. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PLAN_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PLAN_H

#include "tessera/layout.h"

typedef enum tsr__lavapipe_form {
    TSR__LAVAPIPE_NT, /* a [m,k], b [n,k]: lanes along k */
    TSR__LAVAPIPE_NN, /* a [m,k], b [k,n]: lanes along n */
    TSR__LAVAPIPE_TN, /* a [k,m], b [k,n]: lanes along n */
} tsr__lavapipe_form;

/* How a product is divided. tsr__lavapipe_resolve() chooses it. */
typedef struct tsr__lavapipe_method {
    uint32_t rows, vectors; /* a tile: TM and TN of the kernels */
    uint32_t stretch;       /* the number of steps of the longest stretch */
    uint32_t split_steps;   /* the number of steps of a split; 0: k is not split */
    /* the number of matrices of partial sums, each over other ranges of k; they are added up
     * later */
    uint32_t splits;
    /* Stretches are so long, and tiles so high, that neither panels nor a widened b make the
     * product faster. Only devices with long_code (struct tsr_device) have this method. */
    bool long_code;
} tsr__lavapipe_method;

typedef struct tsr__lavapipe_product {
    tsr__lavapipe_form form;
    uint32_t m, n, k; /* at least 1 */
    /* If these rows are a band of a larger product, the number of that product's rows, which
     * determines the method. Otherwise 0 or m. */
    uint32_t all_rows;
    uint32_t lanes; /* the subgroup size: 4, 8 or 16 */
    /* elements from one stored line to the next */
    uint64_t a_stride, b_stride, sums_stride, y_stride;
    tsr_dtype a_dtype, b_dtype;
    bool accumulate;  /* add to the previous contents of the sums */
    bool batched;     /* a dispatch computes several matrices, one for each workgroup in z */
    bool alone;       /* there is only one matrix */
    bool sums_paired; /* every row of the sums starts at a multiple of 8 bytes */
    bool y_paired;    /* every row of y, and every fourth column, starts at a multiple of 8 bytes */
    /* the epilogue (TSR_MM_…) that the dispatch for the last range of k applies; 0: none */
    uint32_t finish;
    bool long_code;            /* see struct tsr_device */
    bool phases;               /* see tsr__mesa_takes_phases */
    bool panels;               /* a and b are in panels (panels.h) */
    uint32_t a_lines, b_lines; /* the number of lines in all panels, including padding */
    uint32_t first_row;        /* the first line of this product in a's panels */
    tsr__lavapipe_method method;
} tsr__lavapipe_product;

/* Specialization constants of the kernels; see shaders/cpu_drivers/matmul_lavapipe.glsl. */
enum {
    TSR__LAVAPIPE_WORKGROUP,
    TSR__LAVAPIPE_LANES,
    TSR__LAVAPIPE_ROWS,    /* TM */
    TSR__LAVAPIPE_VECTORS, /* TN */
    TSR__LAVAPIPE_STEPS,
    TSR__LAVAPIPE_SKIPS,
    TSR__LAVAPIPE_CAREFUL,
    TSR__LAVAPIPE_A_DTYPE,
    TSR__LAVAPIPE_B_DTYPE,
    TSR__LAVAPIPE_BATCHED, /* always 0 in a plan; lavapipe.c and grouped.c set it */
    TSR__LAVAPIPE_SPLIT,
    TSR__LAVAPIPE_FORM, /* WIDTH in nt kernels, A_TRANSPOSED in nn kernels */
    TSR__LAVAPIPE_PAIRS,
    TSR__LAVAPIPE_FINISH,
    TSR__LAVAPIPE_PANELS, /* only for nt kernels, which read b transposed */
    /* only for nn kernels: the dispatch sets the sums instead of adding to them */
    TSR__LAVAPIPE_FRESH,
    TSR__LAVAPIPE_PHASES,
    TSR__LAVAPIPE_CONSTANTS
};

/* One dispatch of a product. It covers some rows and columns of y and one or more ranges of k. */
typedef struct tsr__lavapipe_piece {
    bool nn; /* the shader is matmul_lavapipe_nn, otherwise matmul_lavapipe_nt */
    uint32_t constants[TSR__LAVAPIPE_CONSTANTS];
    uint32_t groups[3];
    uint64_t a, b, sums, y; /* where the piece starts in each operand: the number of elements from
                               the operand's first element */
    uint32_t row, column;   /* the first row and column of y */
    uint32_t m, n, k;
    uint32_t skip; /* the number of elements at the start of k that an earlier piece has added */
    bool accumulate;
    /* A dispatch may compute several blocks of rows, one for each workgroup index in z, so that the
     * rows of a block stay in a cache. Then this is the number of tiles of rows in a block, which
     * is groups[0]; otherwise 0. */
    uint32_t block;
} tsr__lavapipe_piece;

/* Calls `emit` for each dispatch of the product, in the order in which they must be executed,
 * until one call fails. */
typedef tsr_status (*tsr__lavapipe_emit_fn)(void *user, const tsr__lavapipe_piece *piece);
tsr_status tsr__lavapipe_plan(const tsr__lavapipe_product *product, tsr__lavapipe_emit_fn emit,
                              void *user);

/* Returns the method for a product, which has all other fields: the table in plan.c. It does not
 * depend on strides and dtypes. The order in which the products of an element are added depends on
 * the method's stretch and splits, but not on its tile. */
tsr__lavapipe_method tsr__lavapipe_resolve(const tsr__lavapipe_product *p);

/* True if a kernel with lanes along n computes several rows of a product with this k in one
 * stretch. There are only four such k, because each needs a pipeline. */
bool tsr__lavapipe_is_short(int64_t k);

/* True if one dispatch covers all of k, so that no dispatch adds to earlier sums. */
bool tsr__lavapipe_once(const tsr__lavapipe_product *p);

/* A stretch of a product with lanes along k: the range of k that one dispatch adds to the sums. */
typedef struct tsr__lavapipe_stretch {
    uint32_t k;     /* the first element */
    uint32_t steps; /* the number of steps, each of `lanes` elements */
    uint32_t skip;  /* the number of elements at its start that the sums already contain */
    /* True if both operands are bf16 and the kernel reads two elements as one 32-bit word. It then
     * multiplies the elements of two steps together: first those of even index, then those of odd
     * index. */
    bool words;
} tsr__lavapipe_stretch;

/* The number of lines in a panel (panels.h). Products whose operands are in panels use tiles of as
 * many rows and columns. */
#define TSR__LAVAPIPE_PANEL_LINES 4

/* True if a and b can be in panels. This requires long stretches and tiles that fit the panels. */
bool tsr__lavapipe_takes_panels(const tsr__lavapipe_product *p);

/* Returns the stretch of a product with panels that follows the first `done` elements of k. */
tsr__lavapipe_stretch tsr__lavapipe_stretch_after(const tsr__lavapipe_product *p, uint32_t done);

/* The number of subgroups in a workgroup if a row has `tiles` tiles; the subgroups compute
 * neighbouring tiles. It is 1 if larger workgroups would have too many idle subgroups. */
uint32_t tsr__lavapipe_subgroups(uint32_t tiles);

#endif
