/* Rows of tokens, from which a model learns. */
#ifndef TSR_CLI_TRAINING_ROWS_H
#define TSR_CLI_TRAINING_ROWS_H

#include <stdint.h>

#include "tessera/shard.h"

typedef enum data_part { DATA_TRAIN, DATA_HELD_OUT } data_part;

#define DATA_NO_LABEL (-100) /* the label of a token without a loss */

typedef struct data_batch {
    int64_t rows, context;
    int32_t *ids;     /* [rows · context], padded with 0 */
    int32_t *labels;  /* [rows · context]: what each token predicts; DATA_NO_LABEL: no loss */
    int32_t *starts;  /* [rows · context] for tsr_stack_forward; NULL: each row is one document */
    float *weights;   /* [rows · context]; NULL: all 1 */
    int64_t unmasked; /* labels in these rows */
    int64_t tokens;   /* not padding */
    int64_t epoch;    /* of the first row */
} data_batch;

/* Allocates rows of padding without labels. */
data_batch data_batch_create(int64_t rows, int64_t context);
/* Fills row `row` with tokens[context + 1], each of which predicts the next one. */
void data_batch_put(data_batch *batch, int64_t row, const int32_t *tokens);
/* Keeps the tokens of each row that are in one of the two ranges. */
void data_batch_select(data_batch *batch, const tsr_shard_range ranges[2]);
void data_batch_free(data_batch *batch);

#endif
