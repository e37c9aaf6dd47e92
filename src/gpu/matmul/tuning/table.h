/* A table that gives, for each shape class, the kernel that was fastest in a measurement. Also its
 * encoding for files. */
#ifndef TSR_GPU_MATMUL_TUNING_TABLE_H
#define TSR_GPU_MATMUL_TUNING_TABLE_H

#include "gpu/matmul/kernels/configs.h"

/* The largest number of entries. It is more than any search finds, and small enough that a damaged
 * file cannot make a table large. */
#define TSR__MAX_TUNED 4096

typedef struct tsr__tuned_entry {
    uint64_t shape_class;             /* tsr__shape_class_pack() */
    const tsr__matmul_config *config; /* NULL: the usual choice, which replaces an older entry */
    uint32_t splits;                  /* the largest number of ranges of k; 0: the usual number */
} tsr__tuned_entry;

/* A zeroed table is empty. Entries are in ascending order of classes. */
typedef struct tsr__tuned_table {
    tsr__tuned_entry *entries;
    size_t count, capacity;
} tsr__tuned_table;

void tsr__tuned_table_finish(tsr__tuned_table *table);

/* Returns the entry of the class, or NULL if there is none. */
const tsr__tuned_entry *tsr__tuned_table_find(const tsr__tuned_table *table, uint64_t shape_class);

/* The number of entries that name a configuration. */
int tsr__tuned_table_choices(const tsr__tuned_table *table);

/* Adds the entry, or replaces the entry of its class. */
tsr_status tsr__tuned_table_set(tsr__tuned_table *table, const tsr__tuned_entry *entry);

/* Sets every entry of `changes`. If it fails, some of them may have been set. */
tsr_status tsr__tuned_table_merge(tsr__tuned_table *table, const tsr__tuned_table *changes);

/* Encodes the entries that name a configuration. The caller frees *out with tsr__free. */
tsr_status tsr__tuned_table_encode(const tsr__tuned_table *table, void **out, size_t *out_bytes);

/* Decodes bytes that need not be valid. Returns TSR_ERR_INVALID for sizes, orders, classes and
 * numbers that encoding never produces. Skips entries whose configuration this build does not
 * have. */
tsr_status tsr__tuned_table_decode(const void *data, size_t bytes, tsr__tuned_table *out);

#endif
