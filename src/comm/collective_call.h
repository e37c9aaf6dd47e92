/* A call: which operation a rank runs, with the arguments on which all ranks must agree (for
 * example dtype and count). Ranks send each other their calls to compare them, and error texts
 * describe them. */
#ifndef TSR_COMM_COLLECTIVE_CALL_H
#define TSR_COMM_COLLECTIVE_CALL_H

#include <stdbool.h>

#include "tessera/comm.h"

typedef enum tsr__call_kind {
    TSR__CALL_ALL_REDUCE,
    TSR__CALL_REDUCE,
    TSR__CALL_REDUCE_SCATTER,
    TSR__CALL_REDUCE_SCATTER_V,
    TSR__CALL_ALL_GATHER,
    TSR__CALL_ALL_GATHER_V,
    TSR__CALL_BROADCAST,
    TSR__CALL_GATHER,
    TSR__CALL_GATHER_V,
    TSR__CALL_SCATTER,
    TSR__CALL_SCATTER_V,
    TSR__CALL_ALL_TO_ALL,
    TSR__CALL_ALL_TO_ALL_V,
    TSR__CALL_BARRIER,
    TSR__CALL_SPLIT,
    TSR__CALL_DUPLICATE,
    TSR__CALL_CREATE,
    TSR__CALL_GROW,
    /* SEND and RECV involve two ranks only, so their calls have no sequence number. */
    TSR__CALL_SEND,
    TSR__CALL_RECV,
    TSR__CALL_KINDS
} tsr__call_kind;

/* Processes of one build send this struct to each other without conversion. Fields that a kind does
 * not use are 0. Counts that may differ between ranks, such as the size of a rank's own block, are
 * 0 too. */
typedef struct tsr__call {
    uint64_t sequence; /* number of collective calls in the communicator before this one */
    uint64_t count;
    uint64_t counts; /* a hash of the block sizes, for kinds in which every rank passes all sizes */
    int32_t peer;    /* root, or the other rank of a send or receive */
    uint16_t tag;
    uint8_t kind, dtype, op;
    uint8_t unused[3];
    uint32_t history; /* a hash of all collective calls before this one */
} tsr__call;

#define TSR__CALL_TEXT 128
/* Writes a description such as "all_reduce #5 (sum of 100 f32)" to `text` and returns it. */
const char *tsr__call_format(const tsr__call *call, char text[TSR__CALL_TEXT]);
const char *tsr__call_name(int kind);

/* Returns whether two calls agree in everything but `history`. */
bool tsr__call_same(const tsr__call *a, const tsr__call *b);

/* Returns the `history` that the next call must have: the hash of this call and all before it. */
uint32_t tsr__call_history(const tsr__call *call);

/* The signature of a call is a digest that fits into a message's tag: the kind, the dtype, the op,
 * and ten bits of a hash of all other fields, including `history`. */
#define TSR__SIGNATURE_BITS 22
uint32_t tsr__call_signature(const tsr__call *call);
/* Formats what a signature contains, for example "all_reduce (sum of f32)". */
const char *tsr__signature_format(uint32_t signature, char text[TSR__CALL_TEXT]);

#endif
