/* Normalisers: the changes that a tokenizer makes to the text between added tokens before the text
 * is split into words. */
#ifndef TSR_TOKENIZER_NORMALIZE_H
#define TSR_TOKENIZER_NORMALIZE_H

#include "tokenizer/vocabulary.h"

typedef enum tsr__normal_kind {
    TSR__PREPEND,           /* puts `to` in front of a text that is not empty */
    TSR__PREPEND_NEW,       /* as TSR__PREPEND, but only if the text does not start with `to` */
    TSR__PREPEND_FIRST_NEW, /* as TSR__PREPEND_NEW, but only at the start of the whole text */
    TSR__REPLACE,           /* replaces each `from` by `to` */
    TSR__NFC,
    TSR__NFD,
    TSR__NFKC,
    TSR__NFKD
} tsr__normal_kind;

typedef struct tsr__normal_step {
    tsr__normal_kind kind;
    uint64_t from, to; /* where the strings start in `strings` */
    size_t from_size, to_size;
} tsr__normal_step;

typedef struct tsr__normalizer {
    tsr__normal_step *steps;
    size_t count, capacity;
    tsr__strings strings;
} tsr__normalizer;

void tsr__normalizer_finish(tsr__normalizer *normalizer);

/* Appends a step, and copies its strings. `from` is used by TSR__REPLACE only, and is not empty
 * there; Unicode's normal forms use neither string. */
tsr_status tsr__normalizer_add(tsr__normalizer *normalizer, tsr__normal_kind kind, const char *from,
                               size_t from_size, const char *to, size_t to_size) TSR_NODISCARD;

/* Returns the most bytes that texts of `size` bytes in total may have after normalising, and after
 * each step: a file with many replacements could otherwise make gigabytes of a short text. The
 * limit is 64 times `size` and 4096 more; no normal form of Unicode makes a text more than 11 times
 * as long. */
size_t tsr__normal_limit(size_t size);

/* Normalises text[size]; `first` says whether this is the start of the whole text. The result is in
 * result->data and has result->size bytes. The steps work in the memory of *result and *other,
 * which may come from an earlier call; the caller frees the data of both. Bytes that are not UTF-8
 * stay as they are. *left is the largest size that the result and the texts between the steps may
 * have; the call subtracts the size of the result. If `left` is NULL, there is no limit. Errors:
 * TSR_ERR_INVALID if a text would be larger. */
tsr_status tsr__normalize(const tsr__normalizer *normalizer, const char *text, size_t size,
                          bool first, size_t *left, tsr__strings *result,
                          tsr__strings *other) TSR_NODISCARD;

/* Appends text[size], without a zero byte after it. Errors: TSR_ERR_INVALID if *to becomes longer
 * than 2^32 - 1 bytes. */
tsr_status tsr__append(tsr__strings *to, const char *text, size_t size) TSR_NODISCARD;

#endif
