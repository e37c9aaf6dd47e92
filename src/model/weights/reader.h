/* Reads a rank's part of weights from files into tensors. */
#ifndef TSR_MODEL_WEIGHTS_READER_H
#define TSR_MODEL_WEIGHTS_READER_H

#include "model/weights/source.h"
#include "model/weights/weights.h"
#include "tessera/stream.h"

/* The most threads that read. More would not increase the memory's bandwidth. */
#define TSR__WEIGHT_THREADS 4

/* Staging memory of one thread. */
typedef struct tsr__weight_staging {
    void *raw, *run; /* `run`: rows of two parameters */
    float *scratch;
    size_t raw_bytes, run_bytes, scratch_count;
} tsr__weight_staging;

/* A part that is to be read straight to its place in memory. */
typedef struct tsr__weight_pending {
    tsr__weight weight;
    tsr__weight_part part;
    tsr_dtype dtype; /* the dtype in memory */
    char *memory;
} tsr__weight_pending;

typedef struct tsr__weight_reader {
    tsr__weight_source source;
    tsr_stream *stream;
    int threads; /* 1 … TSR__WEIGHT_THREADS */
    uint64_t total_bytes;
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    tsr__weight_pending *pending; /* the parts that are still to be read, all from one file */
    size_t pending_count, pending_capacity;
    tsr__weight_staging staging[TSR__WEIGHT_THREADS];
    void *converted;
    size_t converted_bytes;
} tsr__weight_reader;

/* `ranks` of this host read at the same time, and share its processors. */
void tsr__weight_reader_init(const tsr__model_files *files, tsr_stream *stream, int ranks,
                             tsr__weight_reader *out);
void tsr__weight_reader_finish(tsr__weight_reader *reader);

/* Returns how many bytes of the file reading a part takes. */
uint64_t tsr__weight_part_bytes(const tsr__weight *weight, const tsr__weight_part *part);

/* Reads a part into a contiguous tensor of its shape, in order with the stream. Its dtype is f32,
 * f16, bf16 or a block format; elements of another dtype are converted. In a block format, the part
 * must begin and end with whole blocks. If host and device share the tensor's memory, several
 * threads read the part, perhaps later, but at the latest in tsr__weight_read_rest: the tensor must
 * exist until then. Errors, also of parts before this one: TSR_ERR_IO, TSR_ERR_NO_MEMORY, and those
 * of tsr_quantize and tsr_tensor_upload. */
tsr_status tsr__weight_read(tsr__weight_reader *reader, const tsr__weight *weight,
                            const tsr__weight_part *part, tsr_tensor *out) TSR_NODISCARD;
tsr_status tsr__weight_read_rest(tsr__weight_reader *reader) TSR_NODISCARD;

#endif
