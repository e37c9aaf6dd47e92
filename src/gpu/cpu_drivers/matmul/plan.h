/* Divides one product on lavapipe into dispatches of its straight-line kernels. These functions are
 * pure arithmetic.
 *
 * These kernels have no loops. k is therefore divided into stretches of a few fixed lengths, each
 * with its own pipeline, and each dispatch adds the products of one stretch to the sums. The
 * lengths depend only on the size of the problem, so that small problems share a few pipelines. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PLAN_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PLAN_H

#include "tessera/layout.h"

typedef enum tsr__lavapipe_form {
    TSR__LAVAPIPE_NT, /* a [m,k], b [n,k]: lanes along k */
    TSR__LAVAPIPE_NN, /* a [m,k], b [k,n]: lanes along n */
    TSR__LAVAPIPE_TN, /* a [k,m], b [k,n]: lanes along n */
} tsr__lavapipe_form;

typedef struct tsr__lavapipe_product {
    tsr__lavapipe_form form;
    uint32_t m, n, k;  /* at least 1 */
    uint32_t all_rows; /* if these rows are a band of a larger product: the number of its rows,
                          which determines stretches and tiles. 0: m */
    uint32_t lanes;    /* the subgroup size: 4, 8 or 16 */
    uint64_t a_stride, b_stride, sums_stride, y_stride; /* elements from line to line, as stored */
    tsr_dtype a_dtype, b_dtype;
    bool accumulate;  /* add to the contents of the sums */
    bool batched;     /* a dispatch computes several matrices, one for each workgroup in z */
    bool alone;       /* there is only one matrix */
    bool sums_paired; /* every row of the sums starts at a multiple of 8 bytes */
    bool y_paired;    /* the same for every row of y, and for every fourth column */
    uint32_t finish;  /* epilogue (TSR_MM_…) that each last stretch applies for y; 0: none */
    uint32_t parts;   /* tsr__lavapipe_parts(): matrices of sums, which are added up later */
    bool panels;      /* a and b are in panels (panels.h) */
    uint32_t a_lines, b_lines; /* lines in the panels, padded to whole panels */
    uint32_t first_row;        /* the line of a's panels that this product starts with */
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
    TSR__LAVAPIPE_BATCHED, /* always 0 in a plan */
    TSR__LAVAPIPE_PARTS,
    TSR__LAVAPIPE_FORM, /* nt: WIDTH, nn: A_TRANSPOSED */
    TSR__LAVAPIPE_PAIRS,
    TSR__LAVAPIPE_FINISH, /* nt */
    TSR__LAVAPIPE_PANELS, /* nt */
    TSR__LAVAPIPE_CONSTANTS
};

typedef struct tsr__lavapipe_piece {
    bool nn; /* the shader is matmul_lavapipe_nn, otherwise matmul_lavapipe_nt */
    uint32_t constants[TSR__LAVAPIPE_CONSTANTS];
    uint32_t groups[3];
    uint64_t a, b, sums, y; /* the piece's start, in elements from each operand's first */
    uint32_t column;        /* the first column of y */
    uint32_t m, n, k;
    uint32_t skip; /* elements at the start of k that an earlier piece has added */
    bool accumulate;
    uint32_t block; /* groups[0], if groups[2] counts several blocks of rows */
} tsr__lavapipe_piece;

/* Calls `emit` for the pieces in order until one call fails. */
typedef tsr_status (*tsr__lavapipe_emit_fn)(void *user, const tsr__lavapipe_piece *piece);
tsr_status tsr__lavapipe_plan(const tsr__lavapipe_product *product, tsr__lavapipe_emit_fn emit,
                              void *user);

/* The number of partial sums that each element of y should have. Several are faster for a few long
 * rows, which are limited by the order in which memory is read, and for few elements with a long k,
 * whose dispatches would take more time than their work. Ignores `p->parts`. */
uint32_t tsr__lavapipe_parts(const tsr__lavapipe_product *p);

/* True if one stretch covers all of k, so that no dispatch adds to earlier sums. */
bool tsr__lavapipe_once(const tsr__lavapipe_product *p);

/* The part of k that one dispatch adds to the sums, with lanes along k. */
typedef struct tsr__lavapipe_stretch {
    uint32_t k;     /* its first element */
    uint32_t steps; /* of `lanes` elements each */
    uint32_t skip;  /* the number of its first elements that the sums already contain */
    bool words;     /* two bf16 operands are read as 32-bit words: of the elements of every two
                       steps, those of even index are multiplied first */
} tsr__lavapipe_stretch;

/* Lines of each operand in a tile of the products that take panels. */
#define TSR__LAVAPIPE_PANEL_LINES 4

/* True if a and b may be in panels: the product has long stretches and the tiles of panels. */
bool tsr__lavapipe_takes_panels(const tsr__lavapipe_product *p);

/* The stretch of a product with panels that follows the first `done` elements of k. */
tsr__lavapipe_stretch tsr__lavapipe_stretch_after(const tsr__lavapipe_product *p, uint32_t done);

/* The number of subgroups of a workgroup, which compute neighbouring tiles, if there are `tiles` in
 * a row. It is 1 if too many subgroups would be idle otherwise. */
uint32_t tsr__lavapipe_subgroups(uint32_t tiles);

#endif
