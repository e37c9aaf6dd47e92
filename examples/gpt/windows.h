/* Windows of the text on their way to the device: `block` tokens each, and the tokens that follow
 * them. */
#ifndef GPT_WINDOWS_H
#define GPT_WINDOWS_H

#include "common/job.h"
#include "config.h"
#include "text.h"

typedef struct gpt_windows {
    const gpt_text *text;
    const gpt_offsets *offsets; /* where windows start instead of by chance; NULL: none */
    int block, rows;            /* of this rank, in a batch */
    int batch, first_row;       /* of all data-parallel ranks; this rank's first one */
    tsr_loader *loader;
    int64_t epoch_batches; /* how many batches an epoch has */
    int32_t *host;         /* [2][rows][block] */
    tsr_tensor *x, *y;     /* i32 [rows, block]: the current batch */
} gpt_windows;

/* `text` and `offsets` must outlive it. Call windows_finish() afterwards, also on failure. */
tsr_status windows_init(gpt_windows *self, const gpt_text *text, const gpt_offsets *offsets,
                        const example_job *job, const gpt_config *config,
                        const gpt_training *training, int workers);
void windows_finish(gpt_windows *self);

/* The next windows_train() is that of step `step`. A new object begins at step 0. */
tsr_status windows_seek(gpt_windows *self, int64_t step);

/* Fills x and y with this rank's windows of step `step`; steps follow one another. Every window of
 * the training part starts once in an epoch, in an order that depends on the seed only: which
 * windows a step has does not depend on the number of ranks. */
tsr_status windows_train(gpt_windows *self, tsr_stream *stream, int64_t step);

/* The same for batch `index` of the held-out part, which is the same for every seed. */
tsr_status windows_held_out(gpt_windows *self, tsr_stream *stream, int64_t index);

#endif
