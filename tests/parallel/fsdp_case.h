/* A small model of three layers, trained on rank-dependent data with sharded parameters. */
#ifndef TESTS_PARALLEL_SHARDED_CASE_H
#define TESTS_PARALLEL_SHARDED_CASE_H

#include "parallel/spmd.h"

#define MODEL_LAYERS 3
#define MODEL_ROWS 6 /* of a rank's batch */

/* The pattern that gathers every parameter always: data parallelism. */
extern const char *const everything[];

typedef struct model_case {
    tsr_dtype dtype;   /* of the parameters; 0: f32 */
    tsr_group *tensor; /* NULL: each rank by itself */
    bool whole;        /* layers with memory of their own, which is then taken */
    tsr_fsdp_params sharded;
} model_case;

typedef struct model {
    tsr_group *alone;
    tsr_layer *layers[MODEL_LAYERS];
    tsr_fsdp *sharded;
    tsr_comm *world; /* of a grid; NULL: the group's */
} model;

/* Weights are the same for the same names, whatever the case. */
void model_make(const model_case *c, model *out);
void model_finish(model *m);

/* Rows first … first + rows − 1 of a global batch: forward and backward, with a loss that is the
 * sum over outputs of y · target, times `scale`. */
void model_pass(model *m, int64_t first, int64_t rows, uint64_t sequence, float scale);
/* A step with the batch that belongs to this step, MODEL_ROWS rows for each of `data_ranks`. */
void model_step(model *m, int64_t step, int data_rank, int data_ranks);
void model_update(model *m);

/* The path of a file for all ranks of `comm`. And a file's bytes, to be freed. */
#define SHARED_PATH 64
void shared_path(tsr_comm *comm, const char *name, char path[SHARED_PATH]);
uint8_t *file_bytes(const char *path, uint64_t *size);

/* Every value of every parameter, gathered, and of the optimizer's state: bytes, to be freed. All
 * ranks of the model's group call it. */
uint8_t *model_bytes(model *m, uint64_t *size);

/* Calls of tsr__adamw_step, which the linker replaces, since this was set to 0; and which of them,
 * counted from 0, fails with TSR_ERR_NO_MEMORY; -1: none. */
extern int adamw_steps, adamw_failing_step;

/* Device memory that is in use when all that was recorded is done. */
uint64_t used_bytes(void);

#endif
