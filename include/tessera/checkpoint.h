/* Checkpoints: parameters, and whatever else has a shape, in one safetensors file, which any number
 * of ranks write together and any other number read, each its part.
 *
 *     tsr_checkpoint_entry entries[8];
 *     for (int i = 0; i < n; i++)
 *         tsr_checkpoint_entry_init(tsr_layer_parameter(layer, i), &entries[i]);
 *     tsr_checkpoint_save("model.safetensors", world, stream, n, entries, NULL);
 *     tsr_checkpoint_load("model.safetensors", world, stream, n, entries, NULL);
 *
 * Sharded parameters (fsdp.h) save and load themselves, with the optimizer's state.
 *
 * Saving writes PATH.partial, and gives it its name when all of it is on the disk: whatever happens
 * at whatever moment, PATH is the previous file, or the new one, whole. A PATH.partial that a
 * killed job left behind is replaced by the next one. Ranks write their parts themselves, so PATH
 * has to be in a file system that all of them see; where it is not, saving says so and PATH is
 * untouched.
 *
 * The file follows the format's specification (github.com/huggingface/safetensors): tensors are
 * row-major, one behind the other without gaps, the widest dtypes first, so that each is aligned.
 * The same entries and metadata make the same file, byte for byte, for any number of ranks.
 *
 * Checksums: the metadata "tessera.crc32c" has the CRC-32C of the header and of each tensor.
 * Loading verifies the header, and each tensor whose parts, as the entries of all ranks together
 * read them, make up the whole: any division among the ranks that tsr_checkpoint_save would accept.
 * A tensor of which only some is read is not verified. Files without checksums load as well. They
 * protect against accidents; whoever changes a file on purpose can change the checksums with it.
 *
 * Threads: as the communicator and the stream. */
#ifndef TESSERA_CHECKPOINT_H
#define TESSERA_CHECKPOINT_H

#include "tessera/comm.h"
#include "tessera/layer.h"
#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A rank's part of something that has a name. The part is, of dimension `shard_dim`, elements
 * offset … offset + length − 1, and of these, in row-major order, `count` elements from `first` on.
 * The parts of all ranks make up the whole: several may be the same, of which one is written;
 * parts that overlap otherwise, or leave something out, are an error. */
typedef struct tsr_checkpoint_entry {
    const char *name; /* UTF-8, 1 … TSR_SHARD_MAX_NAME bytes; unique; not "__metadata__" */
    tsr_dtype dtype;
    int ndim;                    /* 0: one element */
    int64_t shape[TSR_MAX_DIMS]; /* of the whole */
    int shard_dim;               /* -1: not divided; then offset and length are not looked at */
    int64_t offset, length;
    uint64_t first, count;
    /* Where the `count` elements are: a tensor that has as many, in its row-major order, and this
     * dtype; or memory of the host, one element behind the other. One of both; neither where count
     * is 0. They are read when saving, and written when loading. */
    tsr_tensor *tensor;
    void *data;
} tsr_checkpoint_entry;

/* All of this rank's part of a parameter. The strings and the tensor stay the parameter's. Errors:
 * TSR_ERR_INVALID for one that has no memory. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_entry_init(const tsr_parameter *parameter,
                                                           tsr_checkpoint_entry *out);

typedef struct tsr_checkpoint_params {
    /* Saving: pairs of a key and a text, ended by NULL: {"epoch", "3", NULL}; the same on all
     * ranks. A key is 1 … TSR_SHARD_MAX_NAME bytes of UTF-8 without control characters, and comes
     * once. A text is any UTF-8, of any length, also empty or of several lines; the file's header,
     * all names and texts as JSON, has at most 100 MB. "format" is "pt" unless given, which readers
     * of models ask for. */
    const char *const *metadata;
    /* Loading: tensors of the file that no entry asks for are an error. */
    bool strict;
    /* Neither write nor verify checksums. The same on all ranks. */
    bool no_checksums;
} tsr_checkpoint_params;
#define tsr_checkpoint_params(...) (&(tsr_checkpoint_params){__VA_ARGS__})

/* All ranks of `comm` call it, with the same path, and the same entries in the same order but for
 * what is a rank's own: offset, length, first, count and memory; a shard_dim of -1 is all of
 * dimension 0. `comm` NULL: this process alone. `stream` may be NULL where no entry has a tensor.
 * Returns when the file is on the disk, on all ranks alike.
 *
 * Errors: TSR_ERR_INVALID for entries that are wrong, that differ between ranks, whose parts do not
 * make up the whole; TSR_ERR_IO naming file and reason, for a path that is no regular file nor a
 * link to one, and for a file that other ranks do not see; TSR_ERR_NOT_FOUND for a folder that does
 * not exist; TSR_ERR_NO_MEMORY; those of the stream and the communicator. Where one rank fails, all
 * do. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_save(const char *path, tsr_comm *comm,
                                                     tsr_stream *stream, int count,
                                                     const tsr_checkpoint_entry *entries,
                                                     const tsr_checkpoint_params *params);

/* Fills this rank's entries from a safetensors file, or from those that a
 * model.safetensors.index.json names. Entries may differ between ranks. With `comm`, all ranks call
 * it, and where one fails, all do; the file is the same for all of them. Everything is checked
 * before the first element is read; after an error of reading, memory is unspecified.
 *
 * The file may be hostile. Errors: TSR_ERR_INVALID for entries that are wrong, or are views that
 * repeat elements; for a header that is wrong (as tsr_shard_list_open), a tensor of another shape
 * or dtype than its entry's, naming both; TSR_ERR_NOT_FOUND for a file, or a tensor, that is not
 * there; TSR_ERR_IO; TSR_ERR_NO_MEMORY; those of the stream and the communicator. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_load(const char *path, tsr_comm *comm,
                                                     tsr_stream *stream, int count,
                                                     const tsr_checkpoint_entry *entries,
                                                     const tsr_checkpoint_params *params);

/* The metadata of a safetensors file, by whatever program: the text that belongs to `key`, of any
 * length, into text[size], with a zero byte. Errors: TSR_ERR_NOT_FOUND for a file or a key that is
 * not there; TSR_ERR_INVALID for a file that is wrong, has a string with a zero character or a key
 * of more than TSR_SHARD_MAX_NAME bytes, or a text that does not fit, saying how many bytes it
 * needs; TSR_ERR_IO; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_metadata(const char *path, const char *key,
                                                         size_t size, char *text);

#ifdef __cplusplus
}
#endif

#endif
