/* Cuts one product for Mesa's CPU driver into dispatches of its straight-line kernels. Pure
 * arithmetic.
 *
 * Those kernels have no loops, so k is cut into stretches of a few fixed lengths, each a pipeline;
 * each dispatch adds a stretch's products to y. The lengths depend on the size of the problem only,
 * and small problems share a handful of pipelines. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_PLAN_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_PLAN_H

#include "tessera/layout.h"

typedef enum tsr__lavapipe_form {
    TSR__LAVAPIPE_NT, /* a [m,k], b [n,k]: lanes along k */
    TSR__LAVAPIPE_NN, /* a [m,k], b [k,n]: lanes along n */
    TSR__LAVAPIPE_TN, /* a [k,m], b [k,n]: likewise */
} tsr__lavapipe_form;

typedef struct tsr__lavapipe_product {
    tsr__lavapipe_form form;
    uint32_t m, n, k;  /* at least 1 */
    uint32_t all_rows; /* of the product that these are a band of, 0: m. They decide on stretches */
    uint32_t lanes;    /* the subgroup size: 4, 8 or 16 */
    uint64_t a_stride, b_stride, sums_stride, y_stride; /* elements from line to line, as stored */
    tsr_dtype a_dtype, b_dtype;
    bool accumulate;  /* onto what is in the sums */
    bool batched;     /* dispatches take several matrices: workgroups in z are theirs */
    bool alone;       /* there is but one matrix */
    bool sums_paired; /* every row of them starts at a multiple of 8 bytes */
    bool y_paired;    /* likewise, and so do any four columns after four */
    uint32_t finish;  /* TSR_MM_… of what each last stretch makes of its sums for y; 0: nothing */
    uint32_t parts;   /* tsr__lavapipe_parts(): matrices of sums, to be added up */
    bool panels;      /* a and b lie in panels, see lavapipe_panels.h */
    uint32_t a_lines, b_lines; /* of them, of whole panels … */
    uint32_t first_row;        /* … and a's line that this product starts with */
} tsr__lavapipe_product;

/* Specialization constants of the kernels, see shaders/cpu_drivers/matmul_lavapipe.glsl. */
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
    TSR__LAVAPIPE_BATCHED, /* left 0 */
    TSR__LAVAPIPE_PARTS,
    TSR__LAVAPIPE_FORM, /* nt: WIDTH, nn: A_TRANSPOSED */
    TSR__LAVAPIPE_PAIRS,
    TSR__LAVAPIPE_FINISH, /* nt */
    TSR__LAVAPIPE_PANELS, /* nt */
    TSR__LAVAPIPE_CONSTANTS
};

typedef struct tsr__lavapipe_piece {
    bool nn; /* matmul_lavapipe_nn, else …_nt */
    uint32_t constants[TSR__LAVAPIPE_CONSTANTS];
    uint32_t groups[3];
    uint64_t a, b, sums, y; /* where it starts, in elements from each operand's first */
    uint32_t column;        /* y's that it starts with */
    uint32_t m, n, k;
    uint32_t skip; /* of k, which an earlier piece has added */
    bool accumulate;
    uint32_t block; /* groups[0], where there are several in groups[2] */
} tsr__lavapipe_piece;

/* Calls `emit` for the pieces in order until one fails. */
typedef tsr_status (*tsr__lavapipe_emit_fn)(void *user, const tsr__lavapipe_piece *piece);
tsr_status tsr__lavapipe_plan(const tsr__lavapipe_product *product, tsr__lavapipe_emit_fn emit,
                              void *user);

/* How many sums each element of y should have: several for a few long rows, of which the order in
 * which memory is read decides, and for few elements with a long k, which would take more
 * dispatches than work. `p->parts` is not looked at. */
uint32_t tsr__lavapipe_parts(const tsr__lavapipe_product *p);

/* Whether all of k is one stretch, so that no sums are added to. */
bool tsr__lavapipe_once(const tsr__lavapipe_product *p);

/* What one dispatch adds to the sums, with lanes along k. */
typedef struct tsr__lavapipe_stretch {
    uint32_t k;     /* its first element */
    uint32_t steps; /* of `lanes` elements each */
    uint32_t skip;  /* of the first elements: they are in the sums already */
    bool words;     /* two bf16 operands are read as words: of every two steps' elements those of
                       even index are multiplied first */
} tsr__lavapipe_stretch;

/* The lines of a tile of products that take panels: of both operands. */
#define TSR__LAVAPIPE_PANEL_LINES 4

/* Whether a and b may lie in panels: what the longest stretches with their tiles are for. */
bool tsr__lavapipe_takes_panels(const tsr__lavapipe_product *p);

/* The stretch of a product with panels that comes after `done` elements of k. */
tsr__lavapipe_stretch tsr__lavapipe_stretch_after(const tsr__lavapipe_product *p, uint32_t done);

/* Subgroups of a workgroup that make neighbouring tiles, `tiles` of them altogether: 1 where more
 * would have too many idle members. */
uint32_t tsr__lavapipe_team(uint32_t tiles);

#endif
