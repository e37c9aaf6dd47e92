/* The table of pages of a key-value cache: which sequence uses which pages. It contains only the
 * numbers of pages, not their memory. */
#ifndef TSR_GPU_KV_CACHE_PAGES_H
#define TSR_GPU_KV_CACHE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/base.h"

typedef struct tsr__sequence {
    bool used;
    int64_t length; /* the number of tokens */
    int64_t count;  /* the number of pages, which is always the number that `length` tokens need */
    size_t capacity;
    int32_t *pages;
} tsr__sequence;

typedef struct tsr__page_table {
    int64_t page_tokens, pages;
    int sequences;
    tsr__sequence *sequence; /* [sequences] */
    int32_t *references;     /* [pages]: the number of sequences and holders that use the page */
    int32_t *free;           /* [free_count]: the numbers of the free pages */
    int64_t free_count;
} tsr__page_table;

/* A page to copy: before a sequence writes to a page that other sequences use, too, it gets a copy
 * of that page. */
typedef struct tsr__page_copy {
    int32_t from, to;
} tsr__page_copy;

tsr_status tsr__pages_init(tsr__page_table *table, int64_t page_tokens, int64_t pages,
                           int sequences) TSR_NODISCARD;
void tsr__pages_finish(tsr__page_table *table);

/* Returns sequence number `sequence`, or NULL if there is none. */
tsr__sequence *tsr__pages_find(const tsr__page_table *table, int sequence);

tsr_status tsr__pages_add(tsr__page_table *table, int *out) TSR_NODISCARD;
tsr_status tsr__pages_fork(tsr__page_table *table, int sequence, int *out) TSR_NODISCARD;
tsr_status tsr__pages_truncate(tsr__page_table *table, int sequence, int64_t length) TSR_NODISCARD;
tsr_status tsr__pages_remove(tsr__page_table *table, int sequence) TSR_NODISCARD;

/* Appends full pages to a sequence, whose length must be a multiple of the tokens of a page. The
 * pages must be in use, and stay so. */
tsr_status tsr__pages_adopt(tsr__page_table *table, int sequence, int64_t count,
                            const int32_t *pages) TSR_NODISCARD;
/* Adds a use of a page that is in use, and ends one. */
void tsr__pages_hold(tsr__page_table *table, int32_t page);
void tsr__pages_release(tsr__page_table *table, int32_t page);

/* Makes sequence sequences[i] longer by tokens[i], for `count` sequences. Sets copies[i] to the
 * page that the caller must copy for it, or to from = -1 if there is none. On failure nothing has
 * changed. */
tsr_status tsr__pages_extend(tsr__page_table *table, int count, const int *sequences,
                             const int64_t *tokens, tsr__page_copy *copies) TSR_NODISCARD;
/* Undoes the last tsr__pages_extend, which must have had the same arguments. */
void tsr__pages_shrink(tsr__page_table *table, int count, const int *sequences,
                       const int64_t *tokens, const tsr__page_copy *copies);

#endif
