/* Loads batches of images from the file to the device. */
#ifndef DIGITS_IMAGES_H
#define DIGITS_IMAGES_H

#include "common/job.h"
#include "data.h"
#include "options.h"

/* Either the images for training or those held out, which are a fifth of the file's images, drawn
 * at random. */
typedef struct images {
    const digits_data *data;
    int64_t *items; /* [count]: indices of the file's images */
    int64_t count;
    tsr_loader *loader;
    int batch;                    /* images per step, of all ranks */
    tsr_tensor *raw, *x, *labels; /* this rank's batch on the device; x in the training's dtype */
} images;

/* A batch: views made by images_next(). */
typedef struct images_batch {
    tsr_tensor *x, *labels;  /* [rows, 64] and [rows] */
    const int32_t *expected; /* labels on the host; −1 for padding. Valid until the next batch */
    int64_t rows;
    int64_t total; /* images of all ranks, without padding */
} images_batch;

typedef enum images_part { IMAGES_TRAIN, IMAGES_HELD_OUT } images_part;

/* `data` must outlive `self`. Call images_finish() afterwards, also on failure. */
tsr_status images_init(images *self, const digits_data *data, images_part part,
                       const example_job *job, const digits_options *options);
void images_finish(images *self);

/* Gives the next batch of the epoch. *got is false if the epoch has no more batches. */
tsr_status images_next(images *self, tsr_stream *stream, images_batch *out, bool *got);
void images_batch_finish(images_batch *batch);

#endif
