/* Values of options that several commands of language models take. */
#ifndef TSR_CLI_LIB_MODEL_H
#define TSR_CLI_LIB_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/generator.h"
#include "tessera/layout.h"
#include "tessera/model.h"

/* Functions for cli_option.read. */

/* Reads a dtype that matrices can have into the tsr_dtype at `user`: a float dtype, or a block
 * format that tsr_quantize supports. */
bool cli_read_matrix_dtype(void *user, const char *text, char *problem, size_t size);
/* Reads f32, f16 or bf16 into the tsr_dtype at `user`. */
bool cli_read_float_dtype(void *user, const char *text, char *problem, size_t size);
/* Reads a dtype that a cache of keys and values can have: one of these, q8_0 or q4_0. */
bool cli_read_cache_dtype(void *user, const char *text, char *problem, size_t size);
/* Reads a tsr_precision: highest, high or medium. */
bool cli_read_precision(void *user, const char *text, char *problem, size_t size);

/* The value of --draft: where drafts of the next tokens come from, and how many a pass has; 0: the
 * default. */
typedef struct cli_draft {
    tsr_draft from;
    int tokens;
    char *path; /* of the model, with TSR_DRAFT_MODEL; free it with free() */
} cli_draft;
/* Reads ngram, mtp or MODEL, each perhaps with :N, into a cli_draft. */
bool cli_read_draft(void *user, const char *text, char *problem, size_t size);

/* The value of --experts. */
typedef struct cli_experts {
    bool given; /* the option was given */
    tsr_expert_division division;
    int host; /* as `host_experts` in tsr_model_params */
    /* of auto:HOSTS and mixed:HOSTS: the ranks of a stage are those of so many hosts; 0: as they
     * are */
    int hosts;
    /* Without `hosts`, auto does not mix experts over hosts: the program has adapters, which mixed
     * experts cannot have. The program sets this. */
    bool unmixed;
} cli_experts;
/* Returns the hosts of all ranks for tsr_model_plan_params, or NULL if the option does not give
 * their number. If there are more hosts than ranks of a stage, which may have lost some, each rank
 * is a host of its own. The caller must free it. */
int *cli_experts_hosts(const cli_experts *experts, int stages, int ranks);
/* Reads cli_experts: auto, inside, whole or mixed, also as auto:HOSTS or mixed:HOSTS, host or
 * host:LAYERS, or both with a comma. */
bool cli_read_experts(void *user, const char *text, char *problem, size_t size);
/* Returns the word for a division of experts. */
const char *cli_expert_division_name(tsr_expert_division division);

/* As cli_failed_in for an error about the file at `path`. If that is a model's config.json, the
 * sentence also names its folder. */
int cli_failed_with_file(const char *command, const char *text, const char *path);

/* The speeds of ranks, in any unit. */
typedef struct cli_rates {
    double *values; /* [count]; free it with free() */
    int count;      /* 0: none are given */
    bool measured;  /* measure them */
} cli_rates;

/* Reads numbers such as 3,1, or "measured", into the cli_rates at `user`. */
bool cli_read_rates(void *user, const char *text, char *problem, size_t size);

/* The numbers of layers of stages. */
typedef struct cli_layers {
    int *values; /* [count]; free it with free() */
    int count;   /* 0: none are given */
} cli_layers;

/* Reads numbers such as 10,12 into the cli_layers at `user`. */
bool cli_read_layers(void *user, const char *text, char *problem, size_t size);

/* The memory of ranks, in bytes. */
typedef struct cli_memory {
    uint64_t *values; /* [count]; free it with free() */
    int count;        /* 0: none is given; 1: the same for all */
} cli_memory;

/* Reads sizes such as 8G,12G into the cli_memory at `user`. */
bool cli_read_memory(void *user, const char *text, char *problem, size_t size);

/* Reads names of matrices that have an adapter, such as q,v, into the set of tsr_lora_target at
 * `user`, an unsigned int. */
bool cli_read_targets(void *user, const char *text, char *problem, size_t size);
/* Prints matrices as cli_read_targets reads them. */
void cli_print_targets(unsigned targets, char *text, size_t size);

#endif
