/* Detects oversubscription: more ranks on one machine than processors for them. */
#ifndef TSR_COMM_API_PROCESSORS_H
#define TSR_COMM_API_PROCESSORS_H

#include <stdbool.h>
#include <stdint.h>

#define TSR__PROCESSOR_WORDS 16

/* The processors on which a process may run: bit i of word w stands for processor 64 · w + i. */
typedef struct tsr__processors {
    uint64_t machine; /* identifies the running kernel, also of containers; 0: unknown */
    uint64_t bits[TSR__PROCESSOR_WORDS];
} tsr__processors;

/* Returns the processors on which this process may run. */
tsr__processors tsr__processors_find(void);

/* The number of ranks of one machine, and the processors on which at least one of them may run. */
typedef struct tsr__sharing {
    tsr__processors all;
    int ranks;
} tsr__sharing;

/* Adds a rank and its processors to `sharing`, unless it is on another machine than the first rank
 * that was added. */
void tsr__sharing_add(tsr__sharing *sharing, const tsr__processors *of_rank);

/* Returns whether more ranks than processors have been added. */
bool tsr__sharing_is_oversubscribed(const tsr__sharing *sharing);

#endif
