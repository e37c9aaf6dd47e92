/* Reads a rank's part of weights from files into tensors. */
#ifndef TSR_MODEL_READER_H
#define TSR_MODEL_READER_H

#include "model/source.h"
#include "model/weights.h"
#include "tessera/stream.h"

typedef struct tsr__weight_reader {
    tsr__weight_source source;
    tsr_stream *stream;
    uint64_t total_bytes;
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    /* staging memory */
    void *raw, *converted;
    float *scratch;
    size_t raw_bytes, converted_bytes, scratch_count;
} tsr__weight_reader;

void tsr__weight_reader_init(const tsr__model_files *files, tsr_stream *stream,
                             tsr__weight_reader *out);
void tsr__weight_reader_finish(tsr__weight_reader *reader);

/* Returns the bytes of the file that reading a part takes. */
uint64_t tsr__weight_part_bytes(const tsr__weight *weight, const tsr__weight_part *part);

/* Reads a part into a contiguous tensor of its shape, in order with the stream. Its dtype is f32,
 * f16, bf16 or a block format; what the file has in another one is converted. In a block format,
 * the part must begin and end with whole blocks. Errors: TSR_ERR_IO, TSR_ERR_NO_MEMORY, and those
 * of tsr_quantize and tsr_tensor_upload. */
tsr_status tsr__weight_read(tsr__weight_reader *reader, const tsr__weight *weight,
                            const tsr__weight_part *part, tsr_tensor *out) TSR_NODISCARD;

#endif
