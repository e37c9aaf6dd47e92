/* Reads the machine code of GPUs as Mesa's drivers print it, and counts what limits a kernel's
 * speed.
 *
 * The counts are those of the main loop, or of the complete program if it has no loop. The main
 * loop is the outermost loop with the largest sum of multiply-adds and bytes loaded. The counts
 * follow one path through the loop: the one with the most multiply-adds; among equal ones, that
 * with the most bytes loaded, then stored, then moved to and from shared memory; and finally that
 * with the fewest other instructions. Code for edges and tails is therefore not counted. */
#ifndef TESTS_ISA_MACHINE_CODE_H
#define TESTS_ISA_MACHINE_CODE_H

#include <stdbool.h>

/* The numbers of accesses of one kind for each width, in bytes per lane. */
#define ISA_WIDTHS 5 /* 1 or 2, 4, 8, 12, 16 */
typedef struct isa_accesses {
    double count[ISA_WIDTHS];
} isa_accesses;

typedef struct isa_figures {
    bool loop;      /* these figures are those of a loop */
    double fma;     /* multiply-adds per lane */
    double pairs;   /* instructions that make two multiply-adds, on pairs of 16-bit elements */
    double matrix;  /* products by matrix units, which also count as multiply-adds */
    double valu;    /* other vector instructions */
    double address; /* instructions among `valu` that compute with 64 bits */
    double salu;
    isa_accesses load, store, lds_read, lds_write;
    double lds_clocks; /* for how long accesses of 64 lanes keep shared memory busy, at 128 B per
                          clock */
    int waits;         /* waits for loads between the first load and the first multiply-add */
    double flight;     /* the most bytes per lane that are loaded without a wait */
    /* The stores after the main loop, and the number of vector instructions there for each element
     * stored, or for each 4 bytes if the element is wider. */
    isa_accesses result;
    double result_valu;
} isa_figures;

/* Values without which code of Intel's GPUs cannot be read. An instruction computes all lanes of a
 * subgroup, or some of them. */
typedef struct isa_gpu {
    int width;  /* invocations in a subgroup */
    int native; /* lanes that the GPU computes at once; fewer take as long */
} isa_gpu;

/* Reads the machine code `text`. `gpu` is NULL for AMD's GPUs. `fma_per_step` is the number of
 * multiply-adds in one step of the main loop, from which the trips of its inner loops follow. If it
 * is unknown, it is 0, and each inner loop counts once. Returns false if the text cannot be
 * read. */
bool isa_read(const char *text, const isa_gpu *gpu, double fma_per_step, isa_figures *out);

/* Return the smallest and the largest width; 0 if there are no accesses. */
int isa_narrowest(const isa_accesses *accesses);
int isa_widest(const isa_accesses *accesses);
double isa_bytes(const isa_accesses *accesses);

#endif
