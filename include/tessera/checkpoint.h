/* Checkpoints: parameters, and any other data that have a shape, in one safetensors file, or in a
 * file for each rank. Any number of ranks write it together, and any other number of ranks read
 * their parts of it.
 *
 *     tsr_checkpoint_entry entries[8];
 *     for (int i = 0; i < n; i++) {
 *         entries[i] = TSR_INIT(tsr_checkpoint_entry);
 *         tsr_checkpoint_get_entry(tsr_layer_parameter(layer, i), &entries[i]);
 *     }
 *     tsr_checkpoint_save("model.safetensors", world, stream, n, entries, NULL);
 *     tsr_checkpoint_load("model.safetensors", world, stream, n, entries, NULL);
 *
 * tsr_optimizer_save (optimizer.h) saves parameters together with the optimizer's state.
 *
 * Saving is atomic: it writes PATH.partial, and renames it to PATH when all of it is on the disk.
 * If the job fails at any moment, PATH is the complete previous file or the complete new one. The
 * next save replaces a PATH.partial that a killed job left behind. Each rank writes its own parts,
 * so PATH must be in a file system that all ranks see; otherwise saving fails and PATH is
 * unchanged. A checkpoint in parts (see below) needs no such file system.
 *
 * The file follows the format's specification (github.com/huggingface/safetensors): tensors are
 * row-major and follow each other without gaps, the widest dtypes first, so that each tensor is
 * aligned. The same entries and metadata give the same file, byte for byte, for any number of
 * ranks.
 *
 * Checksums: the metadata "tessera.crc32c" holds the CRC-32C of the header and of each tensor, 8
 * hexadecimal digits each. Loading verifies the header. It verifies a tensor if the parts that all
 * ranks read make up the full tensor, in a division that tsr_checkpoint_save would accept. A tensor
 * that is read only in part is not verified. Files without checksums can be loaded too. Checksums
 * detect accidental damage only: whoever changes a file on purpose can change the checksums as
 * well.
 *
 * Checkpoints in parts (`parts` in tsr_checkpoint_params): PATH is FOLDER/NAME, with or without
 * ".safetensors" or ".safetensors.index.json". Rank i of n, counted from 1, writes its parts to
 * NAME-0000i-of-0000n.safetensors in FOLDER as its host sees it, and each host gets an index of all
 * files in Hugging Face's format, NAME.safetensors.index.json. Each file is a safetensors file that
 * other programs can read. A tensor that one rank writes in full keeps its name. Otherwise each
 * file has a slice of it, named in the notation of NumPy, such as "x[:,4:8]" or "x[0:4].flat[6:9]".
 * The metadata "tessera.part", a JSON object, describe the slices and name the checkpoint by a
 * random identity and a generation, which is one more than that of the previous checkpoint.
 *
 * An interrupted write never damages the previous checkpoint. All ranks first write
 * NAME-….safetensors.partial. When all of these are on the disks, each rank renames its part of the
 * previous checkpoint to NAME-….safetensors.previous, and the new file to its final name. When all
 * ranks have done that, they remove the files of previous checkpoints. Loading takes the newest
 * generation of which the ranks together see all parts, including files whose names end in
 * .previous.
 *
 * Loading finds the parts in the folders of all hosts; a rank need not see any. Each part is read
 * once, by one rank that sees it, which sends the elements to the ranks that need them. All tensors
 * that are read are verified, because they are read in full.
 *
 * Threads: as for the communicator and the stream. */
#ifndef TESSERA_CHECKPOINT_H
#define TESSERA_CHECKPOINT_H

#include "tessera/comm.h"
#include "tessera/layer.h"
#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's part of a named tensor. Along dimension `shard_dim` the part is elements offset …
 * offset + length − 1. Of these, in row-major order, this rank has `count` elements from element
 * `first` on. The parts of all ranks must make up the full tensor. Several ranks may have the same
 * part, which is then written once. It is an error if parts overlap in any other way or leave
 * elements out. */
typedef struct tsr_checkpoint_entry {
    size_t struct_size;
    const char *name; /* UTF-8, 1 … TSR_SHARD_MAX_NAME bytes; unique; not "__metadata__" */
    tsr_dtype dtype;
    int ndim;                    /* 0: one element */
    int64_t shape[TSR_MAX_DIMS]; /* the shape of the full tensor */
    int shard_dim;               /* -1: not divided; offset and length are ignored then */
    int64_t offset, length;
    uint64_t first, count;
    /* The memory of the `count` elements, which saving reads and loading writes. Set one of the
     * two, or neither if count is 0: `tensor` has `count` elements of this dtype, taken in
     * row-major order; `data` is contiguous host memory. */
    tsr_tensor *tensor;
    void *data;
} tsr_checkpoint_entry;

/* Makes an entry for all that this rank holds of a parameter. It refers to the parameter's name and
 * tensor. Errors: TSR_ERR_INVALID if the parameter has no memory. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_get_entry(const tsr_parameter *parameter,
                                                          tsr_checkpoint_entry *out);

typedef struct tsr_checkpoint_params {
    size_t struct_size;
    /* Saving: pairs of a key and a text, ended by NULL: {"epoch", "3", NULL}. The same on all
     * ranks. A key is 1 … TSR_SHARD_MAX_NAME bytes of UTF-8 without control characters, and must be
     * unique. A text is UTF-8 of any length; it may be empty or have several lines. The file's
     * header, all names and texts as JSON, is limited to 100 MB. "format" is "pt" unless it is
     * given, because some programs require it. */
    const char *const *metadata;
    /* Loading: it is an error if the file has a tensor that no entry on this rank reads. */
    bool strict;
    /* Neither write nor verify checksums. The same on all ranks. */
    bool skip_checksums;
    /* Saving the stages of a pipeline (pipeline.h), each of which lists entries of its own: a
     * communicator of one rank of each stage, in the order of the stages. Each rank of a stage is
     * in another such communicator, and all ranks of `comm` must set theirs. The file has the
     * entries of stage 0, then those that stage 1 has in addition, and so on. An entry that several
     * stages have must be the same for all of them. NULL: all ranks list the same entries. */
    tsr_comm *stages;
    /* Save or load a checkpoint in parts (see above). The same on all ranks. */
    bool parts;
} tsr_checkpoint_params;
#define tsr_checkpoint_params(...)                                                                 \
    (&(tsr_checkpoint_params){.struct_size = sizeof(tsr_checkpoint_params), __VA_ARGS__})

/* Saves a checkpoint. Collective: all ranks of `comm` must call it with the same path, and with the
 * same entries in the same order, except for a rank's own values: offset, length, first, count and
 * memory. A shard_dim of -1 stands for all of dimension 0. `comm` NULL: this process alone.
 * `stream` may be NULL if no entry has a tensor. Blocks until the file is on the disk, on all
 * ranks.
 *
 * Errors: TSR_ERR_INVALID for entries that are wrong, that differ between ranks, or whose parts do
 * not make up the full tensor; TSR_ERR_IO naming file and reason, also for a path that is not a
 * regular file or a link to one, and for a file that other ranks do not see; TSR_ERR_NOT_FOUND for
 * a folder that does not exist; TSR_ERR_NO_MEMORY; those of the stream and the communicator. If one
 * rank fails, all ranks return an error. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_save(const char *path, tsr_comm *comm,
                                                     tsr_stream *stream, int count,
                                                     const tsr_checkpoint_entry *entries,
                                                     const tsr_checkpoint_params *params);

/* Loads this rank's entries from a safetensors file, or from the files that a
 * model.safetensors.index.json names. Entries may differ between ranks. Collective if `comm` is not
 * NULL: all ranks must call it, with the same file and the same skip_checksums, and if one rank
 * fails, all ranks return an error. Blocks until all ranks have read their entries and verified the
 * checksums. Everything else is checked before the first element is read; after an error of reading
 * or a wrong checksum, the memory of the entries is unspecified.
 *
 * The file may be hostile. Errors: TSR_ERR_INVALID for entries that are wrong, or are views that
 * repeat elements; for a wrong header (as tsr_shard_list_open); for a tensor whose shape or dtype
 * differs from its entry's, naming both; for a checksum that does not match, naming the tensor;
 * TSR_ERR_NOT_FOUND for a file or a tensor that does not exist, with advice if there are parts of
 * such a checkpoint and `parts` is not set; TSR_ERR_IO; TSR_ERR_NO_MEMORY; those of the stream and
 * the communicator. For a checkpoint in parts also: TSR_ERR_NOT_FOUND if no checkpoint is complete,
 * naming a missing part; TSR_ERR_INVALID for parts that do not make up a tensor, for two different
 * files that claim to be the same part of the same checkpoint, or for two complete checkpoints of
 * one generation. If an older generation is loaded because a newer one is incomplete, that is
 * logged as a warning. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_load(const char *path, tsr_comm *comm,
                                                     tsr_stream *stream, int count,
                                                     const tsr_checkpoint_entry *entries,
                                                     const tsr_checkpoint_params *params);

/* Reads the metadata of a safetensors file, written by any program, or of a checkpoint in parts if
 * params->parts is set, and uses no other param: copies the text of `key` to text[size], with a
 * terminating zero. `params` may be NULL. Collective if `comm` is not NULL: all ranks must call it
 * with the same arguments, and all get the text of a checkpoint in parts, also those whose hosts
 * have no part. A process that reads a file alone passes NULL. Blocks until the header has been
 * read and, if it has a checksum, verified.
 *
 * Errors: TSR_ERR_NOT_FOUND for a file or a key that does not exist; TSR_ERR_INVALID for a wrong
 * file or checksum, a string with a zero character, a key of more than TSR_SHARD_MAX_NAME bytes, or
 * a text that does not fit, naming the bytes that it needs; TSR_ERR_IO; TSR_ERR_NO_MEMORY; those of
 * the communicator; for a checkpoint in parts those of finding the parts in tsr_checkpoint_load. */
TSR_API TSR_NODISCARD tsr_status tsr_checkpoint_metadata(const char *path, tsr_comm *comm,
                                                         const tsr_checkpoint_params *params,
                                                         const char *key, size_t size, char *text);

#ifdef __cplusplus
}
#endif

#endif
