/* What the tests of adapters share (lora.c, lora_files.c, lora_mistakes.c): a model on a grid of
 * ranks with one adapter, and files of adapters. */
#ifndef TESTS_MODEL_LORA_RUN_H
#define TESTS_MODEL_LORA_RUN_H

#include <jansson.h>

#include "tessera/lora.h"
#include "tessera/optimizer.h"

#define FOLDER TEST_DATA "/training/lora/"

enum { VOCABULARY = 65, PASSES = 3, PROMPT = 24 }; /* PROMPT: tokens of the recorded prompt */

/* A grid of ranks: rank (stage · data + d) · tensor + t. */
typedef struct lora_grid {
    int stages, data, tensor;
    const double *rates; /* [tensor]; NULL: equal */
    bool recompute, shards, base_shards;
} lora_grid;

typedef struct lora_run {
    lora_grid grid;
    tsr_comm *stages, *data_comm, *tensor_comm;
    tsr_group *data, *tensor;
    int stage, data_rank;
    tsr_partition_params partition;
    tsr_model *model;
    tsr_stack *stack;
    tsr_lora *lora;
    tsr_optimizer *optimizer;
    tsr_pipeline *pipeline;
    char *text;
    json_t *recorded;
    /* the step */
    int step, micro_batches;
    tsr_stack_saved *saved[PASSES];
    tsr_layer_saved *head_saved[PASSES];
    tsr_tensor *dlogits[PASSES];
    bool by_chunks; /* with tsr_stack_head_loss, whose result is dhidden */
    tsr_tensor *dhidden[PASSES];
    double loss;
} lora_run;

/* Creates the groups and the pipeline of r->grid. */
void lora_make_grid(lora_run *r);
/* Returns the communicator of stages, or NULL if there is one stage. */
tsr_comm *lora_stages_of(const lora_run *r);
/* Opens a model of FOLDER on the grid. */
void lora_open_base(lora_run *r, const char *base);
/* Opens a model of FOLDER with all ranks in one tensor group. */
lora_run lora_open_plain(const char *base);
/* Destroys what a run has. */
void lora_finish(lora_run *r);
/* Computes the logits of the recorded prompt: [24, VOCABULARY]; free() them. */
float *lora_prompt_logits(lora_run *r);
/* Returns the largest difference between logits of the prompt. */
double lora_largest_difference(const float *a, const float *b);

/* Files ---------------------------------------------------------------------------------------- */

/* A folder for the files of a case, the same on all ranks. */
const char *lora_scratch(void);
/* Removes a PEFT folder in such a folder, and the latter. */
void lora_remove_adapter(const char *folder, const char *name);

typedef struct lora_tensors {
    tsr_shard_list *list;
    FILE *file;
} lora_tensors;
lora_tensors lora_open_tensors(const char *path);
/* Reads the matrix of a name; free() it. */
float *lora_read_tensor(const lora_tensors *t, const char *name, int64_t *count);
void lora_close_tensors(lora_tensors *t);
/* Compares two files of tensors: each differs by at most `tolerance` of its norm. */
void lora_compare_tensors(const char *path, const char *wanted, double tolerance);

#endif
