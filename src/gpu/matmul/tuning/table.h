/* Shape classes and the kernels that were found best for them, and the bytes they are stored as. */
#ifndef TSR_GPU_MATMUL_TUNING_TABLE_H
#define TSR_GPU_MATMUL_TUNING_TABLE_H

#include "gpu/matmul/kernels/configs.h"

/* More than any search finds, and few enough for a damaged file to do no harm. */
#define TSR__MAX_TUNED 4096

typedef struct tsr__tuned_entry {
    uint64_t shape_class;             /* tsr__shape_class_pack() */
    const tsr__matmul_config *config; /* NULL: as usual, which takes an older entry back */
    uint32_t splits;                  /* at most so many parts of k; 0: as usual */
} tsr__tuned_entry;

/* Zeroed is empty. Entries are in ascending order of classes. */
typedef struct tsr__tuned_table {
    tsr__tuned_entry *entries;
    size_t count, capacity;
} tsr__tuned_table;

void tsr__tuned_table_finish(tsr__tuned_table *table);

/* NULL when there is none. */
const tsr__tuned_entry *tsr__tuned_table_find(const tsr__tuned_table *table, uint64_t shape_class);

/* Entries that name a configuration. */
int tsr__tuned_table_choices(const tsr__tuned_table *table);

/* Adds the entry or replaces the class's. */
tsr_status tsr__tuned_table_set(tsr__tuned_table *table, const tsr__tuned_entry *entry);

/* Sets everything of `changes`. On failure some of it may have been. */
tsr_status tsr__tuned_table_merge(tsr__tuned_table *table, const tsr__tuned_table *changes);

/* The entries that name a configuration, as bytes that are the caller's to tsr__free. */
tsr_status tsr__tuned_table_encode(const tsr__tuned_table *table, void **out, size_t *out_bytes);

/* Believes nothing: TSR_ERR_INVALID for sizes, orders, classes and numbers that encoding does not
 * produce. Configurations that this build does not have are left out. */
tsr_status tsr__tuned_table_decode(const void *data, size_t bytes, tsr__tuned_table *out);

#endif
