/* A small model of three layers with sharded parameters. Each rank trains it with its own rows of a
 * batch. */
#ifndef TESTS_PARALLEL_SHARDED_CASE_H
#define TESTS_PARALLEL_SHARDED_CASE_H

#include "parallel/fsdp_steps.h"
#include "parallel/spmd.h"

#define MODEL_LAYERS 3
#define MODEL_ROWS 6 /* rows of a rank's batch */

/* The pattern that matches every parameter, for the list of parameters that are always gathered,
 * as in plain data parallelism. */
extern const char *const everything[];

typedef struct model_case {
    tsr_dtype dtype;   /* of the parameters; 0: f32 */
    tsr_group *tensor; /* NULL: no tensor parallelism */
    bool whole;        /* the layers are not deferred, and the model takes their values */
    tsr_fsdp_params sharded;
} model_case;

typedef struct model {
    tsr_group *alone;
    tsr_layer *layers[MODEL_LAYERS];
    tsr_fsdp *sharded;
    tsr_comm *world; /* all ranks of a grid; NULL: those of the group */
} model;

/* Creates the model. Its weights depend only on the parameters' names. */
void model_make(const model_case *c, model *out);
void model_finish(model *m);

/* Runs forward and backward passes with rows first … first + rows − 1 of a global batch. The loss
 * is the sum over outputs of y · target + y² / 4, times `scale`. */
void model_pass(model *m, int64_t first, int64_t rows, uint64_t sequence, float scale);
/* Runs step number `step`. Its batch has MODEL_ROWS rows for each of `data_ranks`. */
void model_step(model *m, int64_t step, int data_rank, int data_ranks);
void model_update(model *m);

/* shared_path gets the path of a temporary file, which is the same on all ranks of `comm`.
 * file_bytes reads a file of at most 1 MiB; free() the bytes. */
#define SHARED_PATH 64
void shared_path(tsr_comm *comm, const char *name, char path[SHARED_PATH]);
uint8_t *file_bytes(const char *path, uint64_t *size);

/* Returns the bytes of a checkpoint, which has all parameters and the optimizer's state; free()
 * them. All ranks of the group, or of `world`, must call it. */
uint8_t *model_bytes(model *m, uint64_t *size);

/* The linker replaces tsr__adamw_step by a function that counts its calls in adamw_steps since
 * that was set to 0. The call with number adamw_failing_step, counted from 0, fails with
 * TSR_ERR_NO_MEMORY; -1: none fails. */
extern int adamw_steps, adamw_failing_step;

/* Returns the device memory that is in use after all recorded work is done. */
uint64_t used_bytes(void);

#endif
