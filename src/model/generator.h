/* The struct of a generator, which generator.c and generator_step.c share. */
#ifndef TSR_MODEL_GENERATOR_H
#define TSR_MODEL_GENERATOR_H

#include <stdatomic.h>

#include "tessera/generator.h"

/* The tokens in a page of a generator's cache, unless the context is smaller. */
#define TSR__PAGE_TOKENS 64

typedef struct tsr__sequence {
    bool used;
    tsr_finish finish;
    int cache;      /* the number of the sequence in the cache */
    int64_t length; /* the number of tokens */
    int64_t seen;   /* the number of tokens, from the first on, that the cache has */
    int64_t limit;  /* the largest length */
    tsr_finish at_limit;
    int32_t *tokens;
    tsr_sampling_params sampling;
    uint64_t number;
    bool ignore_end;
    int32_t *stop;
    int stop_count;
} tsr__sequence;

struct tsr_generator {
    tsr_generator_params params;
    bool prefill_given; /* the caller's params give `prefill` */
    tsr_model *model;
    tsr_kv_cache *cache;
    int count;                 /* the number of `sequences` */
    tsr__sequence *sequences;  /* [count] */
    float *logits;             /* [count, vocabulary]: those that the next tokens are chosen from */
    float *shown;              /* [prefill, vocabulary]: those that only the caller gets; or NULL */
    int32_t *ids;              /* [max(count, prefill)] */
    int32_t *votes;            /* [count + 1]: what the ranks agree on */
    double *log_probabilities; /* [count]: those of the chosen tokens */
    tsr_generator_stats stats;
    atomic_bool interrupt;
};

#endif
